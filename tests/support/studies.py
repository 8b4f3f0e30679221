"""A study small enough to run in a test, and ways to run and disturb it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.faulty_cell import BODY
from support.processes import of_this_worker
from wirecost.breakdown import Breakdown
from wirecost.study import Result, Status

STUDY = """\
name: small
workloads:
  - {name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}
networks:
  - {name: capped, emulate: {rate: 50 Mb/s}}
plans: [all-reduce]
hosts: [2]
scaling: [{kind: strong, global_batch: 4}]
iterations: 3
warmup: 1
benchmark: false
"""

# A rank's command that does something else first; the experiment's directory is its last argument.
FAULTY = """\
import os, sys
import wirecost.train.worker as worker
import wirecost.train.loop as loop
{body}
sys.exit(worker.main())
"""


def write_study(folder: Path, *changes: tuple[str, str]) -> Path:
    text = STUDY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def start(study: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "wirecost", "study", "run", str(study), "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def faulty_worker(folder: Path, body: str) -> list[str]:
    path = folder / "faulty.py"
    path.write_text(FAULTY.format(body=body))
    return [sys.executable, str(path)]


@contextmanager
def faulty_ranks(body: str) -> Iterator[None]:
    """Lets the ranks of studies in this context run a body first. It has what `FAULTY` imports. Ranks are forked as
    those of other studies are; `faulty_worker` starts a process for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirecost.study.processes.CELL", "support.faulty_cell")
        patch.setenv(BODY, body)
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield


def network_namespaces() -> set[int]:
    """Returns every network namespace of processes of this machine, without those of other parallel tests."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if of_this_worker(entry):
                found.add((entry / "ns" / "net").stat().st_ino)
        except OSError:
            continue
    return found


def processes_about(path: Path) -> list[str]:
    """Returns the command lines of running processes that contain a path."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(path) in line:
                found.append(line)
    return found


def wait_until_gone(path: Path, before: set[int]) -> None:
    """Waits until no process names a path and no network namespace exists that isn't in `before`."""
    deadline = time.monotonic() + 30
    while processes_about(path) or network_namespaces() - before:
        assert time.monotonic() < deadline, (processes_about(path), network_namespaces() - before)
        time.sleep(0.1)


def only(results: list[Result]) -> Result:
    (result,) = results
    return result


def done(result: Result) -> Breakdown:
    assert result.outcome.status is Status.DONE, result.outcome
    assert result.breakdown is not None
    return result.breakdown


def losses(breakdown: Breakdown) -> list[float]:
    """Returns the global batch's mean loss by iteration. All ranks have equal shares of the batch."""
    return [
        sum(i.loss for i in group if i.loss is not None) / len(group)
        for group in breakdown.by_iteration().values()
    ]


def wait_for_samples(out: Path) -> Path:
    deadline = time.monotonic() + 120
    while True:
        for samples in out.glob("experiments/.partial-*/samples/rank-0.jsonl"):
            if samples.stat().st_size:
                return samples.parents[1]
        assert time.monotonic() < deadline, "no iteration was trained"
        time.sleep(0.05)
