"""Runs steps side by side: checks share all GPUs and run first, then timed steps run on GPUs of their own.

Each timed step gets its GPUs in CUDA_VISIBLE_DEVICES.
"""

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
    """A step with `gpus` GPUs of its own; with 0 it shares all. The last `lines` lines of its log are shown."""

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
    """Returns the next step that may start; None if none may.

    A timed step waits until all steps that share GPUs have ended, and no later step takes its GPUs first.
    """
    sharing = [step for step in waiting if not step.gpus]
    if sharing:
        return sharing[0]
    if not waiting or waiting[0].gpus > free or not all(lane.devices for lane in running):
        return None
    return waiting[0]


def run(steps: Sequence[Step], gpus: Sequence[str], out: Path, deadline: float) -> list[str]:
    """Starts steps in their order, as GPUs become free. Returns the names of steps that failed or never ran.

    Each step is a process group with its log in `out`. It is ended at its time limit or at `deadline` (on the
    monotonic clock). When a step ends, a line is printed with the last lines of its log.
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
            for lane in list(running):
                code = lane.process.poll()
                late = now > min(deadline, lane.started + lane.step.limit_s)
                if code is None and not late:
                    continue
                if code is None:
                    lane.stop()
                report(lane, "cut, no time left" if code is None else "done" if code == 0 else f"failed ({code})")
                if code != 0:
                    bad.append(lane.step.name)
                running.remove(lane)
                free += lane.devices
            if now > deadline:
                bad += [step.name for step in waiting]
                waiting.clear()
    finally:
        for lane in running:
            lane.stop()
    return bad


def card(device: str) -> str:
    """Returns the name of this machine's GPUs for tables of results, or `CPU`."""
    if device == "cpu":
        return "CPU"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def all_gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        print("no NVIDIA GPU here (there is no nvidia-smi): run it where there is one", file=sys.stderr)
        raise SystemExit(2)
    run = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return run.stdout.split()
