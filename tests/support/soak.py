"""A study of many short experiments whose processes are killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.studies import processes_about
from wirecost.spec import Study, load
from wirecost.study import Status, Store

STUDY = """\
name: soak
workloads: [{{name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}}]
networks: [loopback]
plans: [all-reduce]
hosts: [1]
ranks_per_host: 2
scaling: [{{kind: strong, global_batch: 4}}]
iterations: 2
warmup: 1
benchmark: false
repeats: {experiments}
"""
WHOSE = ("the run", "a rank", "any process")
GONE_S = 30.0
"""Time that the processes of a run that was killed have to end."""


@dataclass
class Soaked:
    """What came out of a soak.

    Attributes:
        kills: number of kills by whose process was killed.
        runs: number of times that the run was started.
        statuses: results by status at the end, after failed ones were run again.
        failed: results that failed because a process was killed, before they were run again.
        lost: finished results that a later run lost, changed or ran again. There must be none.
        damaged: damaged results at the end. There must be none.
        left: processes and unfinished directories that were left at the end. There must be none.
    """

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    lost: list[str] = field(default_factory=list)
    damaged: int = 0
    left: list[str] = field(default_factory=list)

    def problems(self, experiments: int) -> list[str]:
        """Returns what must not be."""
        problems = [f"{name} was lost or run again" for name in self.lost] + [
            f"{what} was left" for what in self.left
        ]
        if self.damaged:
            problems.append(f"{self.damaged} results are damaged")
        if self.statuses != Counter({"done": experiments}):
            problems.append(f"the results are {dict(self.statuses)} of {experiments}")
        return problems


def soak(folder: Path, experiments: int, *, seed: int, kill_every_s: tuple[float, float]) -> Soaked:
    """Runs the study and kills its processes, and starts it again whenever it has ended, until all are done.

    Args:
        kill_every_s: shortest and longest time between two kills in seconds.
    """
    draw = random.Random(seed)
    study, out = folder / "study.yaml", folder / "out"
    study.write_text(STUDY.format(experiments=experiments))
    soaked = Soaked()
    finished: dict[str, int] = {}
    while len(_finished(out)) < experiments:
        run = _start(study, out)
        soaked.runs += 1
        while run.poll() is None:
            _wait(run, draw.uniform(*kill_every_s))
            if run.poll() is None:
                _kill(run, out, draw, soaked)
        run.wait()
        _wait_until_gone(out)
        now = _finished(out)
        soaked.lost += [name for name, inode in finished.items() if now.get(name) != inode]
        finished = now
    soaked.failed = sum(r.outcome.status is not Status.DONE for r in Store(out).summaries().results)
    for _ in range(5):
        run = _start(study, out, "--retry-failed")
        soaked.runs += 1
        if run.wait() == 0:
            break
    contents = Store(out).contents(every_byte=True)
    soaked.statuses = Counter(str(r.outcome.status) for r in contents.results)
    soaked.damaged = len(contents.damaged)
    soaked.left = [*processes_about(out), *(p.name for p in (out / "experiments").glob(".partial-*"))]
    assert len(load(Study, study).experiments()) == experiments
    return soaked


def _start(study: Path, out: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "wirecost", "study", "run", str(study), "--out", str(out), "--resume", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _finished(out: Path) -> dict[str, int]:
    """Returns the inode of each finished result's status by its name."""
    return {path.parent.name: path.stat().st_ino for path in out.glob("experiments/[!.]*/status.json")}


def _wait(run: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        run.wait(seconds)


def _kill(run: subprocess.Popen[bytes], out: Path, draw: random.Random, soaked: Soaked) -> None:
    whose = draw.choice(WHOSE)
    pids = [run.pid]
    if whose != "the run":
        pids = [pid for pid in _processes(out) if whose == "any process" or _name(pid).startswith("rank-")]
    if pids:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(pids), signal.SIGKILL)
            soaked.kills[whose] += 1


def _processes(out: Path) -> list[int]:
    """Returns the processes whose command line names the directory of the results."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(out).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _wait_until_gone(out: Path) -> None:
    deadline = time.monotonic() + GONE_S
    while _processes(out):
        assert time.monotonic() < deadline, processes_about(out)
        time.sleep(0.05)
