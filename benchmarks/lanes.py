"""Steps that run side by side: first those that only check and share all GPUs, then those that time, each on GPUs
of its own (CUDA_VISIBLE_DEVICES)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TAIL_LINES = 14


@dataclasses.dataclass(frozen=True)
class Step:
    """`gpus` of its own, 0: it shares all; the last `lines` of its log are shown."""

    name: str
    gpus: int
    command: str
    limit_s: float = 420
    lines: int = TAIL_LINES


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


def start(step: Step, devices: list[str], out: Path) -> Running:
    log = out / f"{step.name}.log"
    command = shlex.split(step.command)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Running(step, devices, process, log, time.monotonic())


def report(running: Running, ending: str) -> None:
    lines = running.log.read_text(errors="replace").splitlines()[-running.step.lines :]
    took_s = time.monotonic() - running.started
    devices = f"GPU {','.join(running.devices)}" if running.devices else "shared GPUs"
    print(f"== {running.step.name} on {devices}: {ending} after {took_s:.0f} s", flush=True)
    print("\n".join(f"   {line}" for line in lines), flush=True)


def may_start(waiting: Sequence[Step], running: Sequence[Running], free: int) -> Step | None:
    """The next in line. What times waits for all that shares, and isn't overtaken for its GPUs."""
    sharing = [step for step in waiting if not step.gpus]
    if sharing:
        return sharing[0]
    if not waiting or waiting[0].gpus > free or not all(one.devices for one in running):
        return None
    return waiting[0]


def run(steps: Sequence[Step], gpus: Sequence[str], out: Path, deadline: float) -> list[str]:
    """Starts steps in their order, first come first served; returns the names of those that failed or never ran.

    Each is a process group with its log in `out`, ended when its time or the whole's (`deadline`, on the monotonic
    clock) is up. As one ends, a line is printed with what its log ends with.
    """
    free, waiting, running = list(gpus), [s for s in steps if s.gpus <= len(gpus)], []
    bad = [s.name for s in steps if s.gpus > len(gpus)]
    try:
        while waiting or running:
            while step := may_start(waiting, running, len(free)):
                devices, free = free[: step.gpus], free[step.gpus :]
                running.append(start(step, devices, out))
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


def all_gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        print("no NVIDIA GPU here (there is no nvidia-smi): run it where there is one", file=sys.stderr)
        raise SystemExit(2)
    run = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return run.stdout.split()
