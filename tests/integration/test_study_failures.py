"""Experiments that fail, and how a study says so and goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from support.studies import (
    faulty_ranks,
    only,
    processes_about,
    start,
    wait_for_samples,
    write_study,
)
from wirecost.breakdown import MemoryKind
from wirecost.launch.processes import descendants
from wirecost.spec import Study, load
from wirecost.study import Status, Store, run_study

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def test_a_rank_that_raises_fails_the_experiment_with_its_traceback_and_the_study_goes_on(tmp_path: Path) -> None:
    body = """\
if os.environ["RANK"] == "1" and "ddp" not in sys.argv[1]:
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        if iteration == 2:
            raise LookupError("the moon is in the wrong phase")
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("[all-reduce]", "[all-reduce, ddp]")))
    with faulty_ranks(body):
        first, second = run_study(study, tmp_path / "out")
    assert first.outcome.status is Status.FAILED
    assert first.outcome.rank == 1
    assert first.outcome.reason == "rank 1: LookupError: the moon is in the wrong phase"
    assert "in share" in (first.outcome.traceback or "")
    assert any("moon" in line for line in first.outcome.log_tail)
    assert second.outcome.status is Status.DONE


def test_a_rank_that_is_killed_fails_the_experiment_within_30_s(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = start(write_study(tmp_path, ("iterations: 3", "iterations: 100000")), out)
    wait_for_samples(out)
    victim = next(
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and read(f"/proc/{pid}/comm") == b"rank-1\n" and str(out) in cmdline(pid)
    )
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    run.communicate(timeout=30)
    assert time.monotonic() - killed < 30
    assert run.returncode == 1
    outcome = only(Store(out).results()).outcome
    assert outcome.status is Status.FAILED
    assert (outcome.reason or "").startswith("rank 1 was killed by SIGKILL")


@pytest.mark.parametrize(
    ("whose", "network"),
    [("rank-1", "emulated"), ("rank-1", "native"), ("cell", "native"), ("server", "emulated")],
)
def test_a_process_that_is_stopped_is_noticed_and_named(tmp_path: Path, whose: str, network: str) -> None:
    changes = [("iterations: 3", "iterations: 100000")]
    if network == "native":
        changes += [
            ("{name: capped, emulate: {rate: 50 Mb/s}}", "loopback"),
            ("hosts: [2]", "hosts: [1]\nranks_per_host: 2"),
        ]
    out = tmp_path / "out"
    run = start(write_study(tmp_path, *changes), out)
    wait_for_samples(out)
    server = children(run.pid)[0]
    root = children(server)[0]
    _, cell, *ranks = descendants(root)
    victim = {"cell": cell, "server": root}.get(whose) or next(
        pid for pid in ranks if read(f"/proc/{pid}/comm") == b"rank-1\n"
    )
    os.kill(victim, signal.SIGSTOP)
    run.communicate(timeout=90)
    assert run.returncode == 1
    outcome = only(Store(out).results()).outcome
    assert outcome.status is Status.FAILED
    reason = outcome.reason or ""
    assert f"made no progress: process {victim if whose != 'rank-1' or network == 'native' else ''}" in reason
    assert "is stopped (SIGSTOP" in reason
    assert outcome.rank == (1 if whose == "rank-1" else None)
    assert reason.startswith("rank 1 " if whose == "rank-1" else "the experiment ")
    assert processes_about(out) == []


def test_ranks_of_one_machine_listen_on_its_loopback_interface_only(tmp_path: Path) -> None:
    changes = [("iterations: 3", "iterations: 100000"), ("hosts: [2]", "hosts: [1]\nranks_per_host: 2")]
    changes += [("{name: capped, emulate: {rate: 50 Mb/s}}", "loopback")]
    out = tmp_path / "out"
    run = start(write_study(tmp_path, *changes), out)
    wait_for_samples(out)
    sockets = {
        os.readlink(fd)
        for pid in descendants(run.pid)
        for fd in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(fd).startswith("socket:")
    }
    # sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode (proc_net_tcp(5))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert listening
    assert {address.split(":")[0] for address in listening} == {"0100007F"}  # 127.0.0.1


def test_out_of_memory_is_an_outcome(tmp_path: Path) -> None:
    body = """\
import resource, torch
if os.environ["RANK"] == "0":
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
"""
    text = ("hidden: 64, heads: 2", "hidden: 8192, heads: 2")
    study = load(Study, write_study(tmp_path, text))
    with faulty_ranks(body):
        result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.OOM, result.outcome
    assert result.outcome.rank == 0
    memory = result.outcome.memory
    assert memory is not None
    assert memory.kind is MemoryKind.RESIDENT_SET
    assert memory.peak_bytes
    assert memory.asked_bytes
    assert memory.asked_bytes >= 8192 * 512 * 4
    assert result.outcome.reason is not None
    assert result.outcome.reason.endswith(memory.words)


def test_a_rank_that_runs_out_of_memory_in_training_ends_the_other_and_says_how_much_it_asked_for(
    tmp_path: Path,
) -> None:
    body = """\
import torch
if os.environ["RANK"] == "1":
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        if iteration == 2:
            torch.empty(1 << 50, dtype=torch.uint8)
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\ntimeout: 300 s")))
    began = time.monotonic()
    with faulty_ranks(body):
        result = only(run_study(study, tmp_path / "out"))
    assert time.monotonic() - began < 200  # the other was not left to its timeout
    assert (result.outcome.status, result.outcome.rank) == (Status.OOM, 1)
    assert result.outcome.memory is not None
    assert result.outcome.memory.asked_bytes == 1 << 50
    assert processes_about(tmp_path / "out") == []


def test_a_diverging_loss_stops_the_run_and_names_the_iteration(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\noptimizer: {learning_rate: 1.0e+19}")))
    result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.FAILED
    assert "NonFiniteLossError: the loss is nan at iteration 1" in (result.outcome.reason or "")


def test_a_rank_that_hangs_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    body = """\
import time
if os.environ["RANK"] == "1":
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        while iteration == 1:
            time.sleep(0.05)
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\ntimeout: 20 s")))
    with faulty_ranks(body):
        result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.FAILED
    assert "not finished after 20 s; rank 1 had completed 1 of 4 iterations" in (result.outcome.reason or "")
    log = (result.directory / "logs" / "rank-1.log").read_text()
    assert "in share" in log


def test_more_than_the_machine_reaches_is_skipped_with_what_it_does(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("50 Mb/s", "100 Gb/s")))
    result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.SKIPPED
    assert "can't be shaped to 100 Gb/s" in (result.outcome.reason or "")


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    return [child for child in descendants(pid) if process_parent(child) == pid]


def process_parent(pid: int) -> int:
    return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


def cmdline(pid: str) -> str:
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()
