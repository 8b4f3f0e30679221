"""Everything that needs GPUs, in one run: the tests that CI can't run, and the benchmarks beside their peers.

    PYTHONPATH=src python benchmarks/on_gpus.py --seconds 540 --out DIR [--only A,B] [--nccl-tests SOURCE]
    python benchmarks/on_gpus.py --list

Steps run side by side on GPUs of their own (CUDA_VISIBLE_DEVICES), first come first served, in the order of
--list; each is a process group with its log in DIR, ended when its time or the whole's is up. As each ends, a line
is printed with what its log ends with. Exit code 1 if a step failed or did not run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider -x"
ON_GPUS = "env WIRECOST_TEST_DEVICE=cuda"
PARITY = " ".join(f"tests/integration/train/test_{name}.py" for name in (
    "data_parallel", "sharded", "tensor_parallel", "pipeline", "steps", "periodic",
))  # fmt: skip
ENGINE = f"{sys.executable} benchmarks/engine.py --seconds 400"
TAIL_LINES = 14


@dataclasses.dataclass(frozen=True)
class Step:
    """`gpus` of its own; `lines` of its log are shown; it waits for the step `after`."""

    name: str
    gpus: int
    command: str
    after: str | None = None
    limit_s: float = 420
    lines: int = TAIL_LINES


PEER = f"{sys.executable} benchmarks/collectives.py"

STEPS = (
    Step("build-nccl-tests", 0, "benchmarks/build_nccl_tests.sh {source} {build}"),
    Step("two-hosts", 2, f"{PYTEST} tests/integration/test_gpu.py -k 'not four'"),
    Step("parity-2", 2, f"{ON_GPUS} {PYTEST.removesuffix(' -x')} {PARITY} -k 'not 4'"),
    Step("engine-medium", 1, f"{ENGINE} --models gpt-2-medium"),
    Step("engine-large", 1, f"{ENGINE} --models gpt-2-large"),
    Step("parity-4", 4, f"{ON_GPUS} {PYTEST.removesuffix(' -x')} {PARITY} -k 4"),
    Step("four-hosts", 4, f"{PYTEST} tests/integration/test_gpu.py -k four"),
    Step("engine-two", 2, f"{ENGINE} --two --loss plain --skip baseline,megatron,micro-1"),
    *(
        Step(name, 2, f"{PEER} {{build}} -b 8 -e 1G {options}", after="build-nccl-tests", lines=40)
        for name, options in (("nccl-tests", ""), ("nccl-tests-graphs", "-G 1"))
    ),
)


@dataclasses.dataclass
class Running:
    step: Step
    devices: list[str]
    process: subprocess.Popen[bytes]
    log: Path
    started: float

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def start(step: Step, devices: list[str], out: Path, source: Path) -> Running:
    log = out / f"{step.name}.log"
    command = shlex.split(step.command.format(source=source, build=(out / "nccl-tests").resolve()))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Running(step, devices, process, log, time.monotonic())


def report(running: Running, ending: str) -> None:
    lines = running.log.read_text(errors="replace").splitlines()[-running.step.lines :]
    took_s = time.monotonic() - running.started
    devices = ",".join(running.devices)
    print(f"== {running.step.name} on GPU {devices}: {ending} after {took_s:.0f} s", flush=True)
    print("\n".join(f"   {line}" for line in lines), flush=True)


def may_start(waiting: list[Step], running: list[Running], free: int) -> Step | None:
    """The next in line; the one before it is not overtaken for its GPUs: it might wait for ever."""
    unfinished = {step.name for step in waiting} | {one.step.name for one in running}
    for step in waiting:
        if step.after not in unfinished:
            return step if step.gpus <= free else None
    return None


def run(steps: list[Step], gpus: list[str], out: Path, source: Path, deadline: float) -> list[str]:
    """Returns the names of steps that failed or never ran."""
    free, waiting, running = list(gpus), [s for s in steps if s.gpus <= len(gpus)], []
    bad = [s.name for s in steps if s.gpus > len(gpus)]
    try:
        while waiting or running:
            while step := may_start(waiting, running, len(free)):
                devices, free = free[: step.gpus], free[step.gpus :]
                running.append(start(step, devices, out, source))
                waiting.remove(step)
            time.sleep(0.2)
            now = time.monotonic()
            for one in list(running):
                code = one.process.poll()
                late = now > min(deadline, one.started + one.step.limit_s)
                if code is None and not late:
                    continue
                if code is None:
                    one.stop()
                report(one, "cut, no time left" if code is None else "done" if code == 0 else f"failed ({code})")
                if code != 0:
                    bad.append(one.step.name)
                running.remove(one)
                free += one.devices
            if now > deadline:
                bad += [step.name for step in waiting]
                waiting.clear()
    finally:
        for one in running:
            one.stop()
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--out", type=Path, default=Path("on-gpus"))
    parser.add_argument("--only", help="names of steps, with commas")
    parser.add_argument("--nccl-tests", type=Path, help="a checkout of nccl-tests; without it, no such steps")
    parser.add_argument("--gpus", help="which, with commas; all by default")
    parser.add_argument("--list", action="store_true", help="show the steps and stop")
    options = parser.parse_args()
    if options.list:
        for step in STEPS:
            print(f"{step.name:<18} {step.gpus} GPU{'' if step.gpus == 1 else 's'}  {step.command}")
        return 0
    names = {step.name for step in STEPS}
    wanted = set(options.only.split(",")) if options.only else names
    if unknown := wanted - names:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are: {', '.join(s.name for s in STEPS)}")
    if options.nccl_tests is None:
        wanted = {name for name in wanted if "nccl-tests" not in name}
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    steps = [step for step in STEPS if step.name in wanted]
    gpus = options.gpus.split(",") if options.gpus else all_gpus()
    bad = run(steps, gpus, options.out, options.nccl_tests or Path(), deadline)
    print(f"{len(steps) - len(bad)} of {len(steps)} steps done; failed or not run: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def all_gpus() -> list[str]:
    run = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return run.stdout.split()


if __name__ == "__main__":
    sys.exit(main())
