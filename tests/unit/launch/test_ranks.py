"""Which rank is to blame when several end at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from wirecost.emulation.hosts import EmulatedHosts
from wirecost.launch.rank import classify
from wirecost.launch.ranks import Ranks, oom_kills
from wirecost.launch.result import JobResult, JobStatus
from wirecost.spec.network import Emulation, Network
from wirecost.storage import StorageError


def judge(folder: Path, *ends: str, kinds: dict[int, str], oom_kills_before: int | None = None) -> JobResult:
    """Ranks that ended as `ends` says: 'killed', 'failed' or, only after the first was seen, 'later'."""
    (folder / "logs").mkdir()
    (folder / "failures").mkdir()
    commands = {"killed": "import os; os.kill(os.getpid(), 9)", "failed": "raise SystemExit(3)"}
    ranks = Ranks.__new__(Ranks)
    ranks.directory = folder
    ranks.oom_kills_before = oom_kills_before
    ranks._since_s = 0.0
    later = "import time; time.sleep(0.5); raise SystemExit(3)"
    ranks.processes = [subprocess.Popen([sys.executable, "-c", commands.get(e, later)]) for e in ends]
    for rank, process in enumerate(ranks.processes):
        (folder / "logs" / f"rank-{rank}.log").write_text("log")
        if ends[rank] != "later":
            process.wait()
    for rank, kind in kinds.items():
        failure: dict[str, Any] = {"rank": rank, "kind": kind, "reason": kind, "traceback": "t"}
        (folder / "failures" / f"rank-{rank}.json").write_text(json.dumps(failure))
    with ranks:
        return ranks.failed()


def test_a_killed_rank_is_the_cause_whatever_the_others_say_later(tmp_path: Path) -> None:
    outcome = judge(tmp_path, "later", "killed", kinds={0: "error"})
    assert (outcome.status, outcome.rank) == (JobStatus.FAILED, 1)
    assert "rank 1 was killed by SIGKILL" in (outcome.reason or "")


def test_the_kernels_own_count_tells_a_kill_for_want_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill_other 9\noom_kill 3\n")
    assert oom_kills(vmstat) == 3
    vmstat.write_text("pgfault 1\n")
    assert oom_kills(vmstat) is None
    assert oom_kills(tmp_path / "none") is None
    monkeypatch.setattr("wirecost.launch.ranks.oom_kills", lambda: 4)
    for before, status, words in (
        (3, JobStatus.OUT_OF_MEMORY, "memory ran out"),
        (4, JobStatus.FAILED, "memory did not run out"),
        (None, JobStatus.FAILED, "the kernel sends this signal when memory runs out"),
    ):
        folder = tmp_path / str(before)
        folder.mkdir()
        outcome = judge(folder, "killed", kinds={}, oom_kills_before=before)
        assert (outcome.status, outcome.rank) == (status, 0)
        assert words in (outcome.reason or "")
        assert (outcome.memory is not None) is (status is JobStatus.OUT_OF_MEMORY)
        if outcome.memory is not None:
            assert outcome.memory.peak_bytes  # of the child that was killed
            assert outcome.memory.asked_bytes is None


def test_a_rank_that_raised_is_the_cause_and_not_one_that_lost_it(tmp_path: Path) -> None:
    outcome = judge(tmp_path, "failed", "failed", kinds={0: "lost_peer", 1: "out_of_memory"})
    assert (outcome.status, outcome.rank, outcome.reason) == (
        JobStatus.OUT_OF_MEMORY,
        1,
        "rank 1: out_of_memory; peak memory reached unknown, largest allocation asked for unknown",
    )


def test_four_gpus_as_two_hosts_of_two(tmp_path: Path) -> None:
    """NCCL takes ranks with one host id for one host: peer access inside, sockets between."""

    class Hosts:
        def address(self, host: int) -> str:
            return f"10.77.{host}.1"

        def enter(self, host: int) -> None:
            os.write(journal.fileno(), str(host).encode())

    (tmp_path / "logs").mkdir()
    tell = "import json, os; print(json.dumps(dict(os.environ)))"
    network = Network(name="two", emulate=Emulation())
    with (tmp_path / "entered").open("wb") as journal:
        ranks = Ranks(
            [sys.executable, "-c", tell], tmp_path, 4, per_host=2, network=network, hosts=cast(EmulatedHosts, Hosts()),
            nccl_log=True,
        )  # fmt: skip
        with ranks:
            assert ranks.watch(60, lambda _: 0).status is JobStatus.DONE
    assert sorted((tmp_path / "entered").read_text()) == ["0", "0", "1", "1"]
    environments = [json.loads((tmp_path / "logs" / f"rank-{rank}.log").read_text()) for rank in range(4)]
    assert [t["NCCL_HOSTID"] for t in environments] == ["wirecost-host-0"] * 2 + ["wirecost-host-1"] * 2
    assert [(t["RANK"], t["LOCAL_RANK"], t["LOCAL_WORLD_SIZE"]) for t in environments] == [
        ("0", "0", "2"), ("1", "1", "2"), ("2", "0", "2"), ("3", "1", "2"),
    ]  # fmt: skip
    for t in environments:
        assert (t["NCCL_NET"], t["NCCL_SOCKET_IFNAME"], t["MASTER_ADDR"]) == ("Socket", "eth0", "10.77.0.1")
        # A worker deals out the machine's GPUs by rank, so that nothing is hidden from it or forbidden to it.
        for name in ("CUDA_VISIBLE_DEVICES", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
            assert t.get(name) == os.environ.get(name)


@pytest.mark.parametrize("sign", ["Connection reset by peer", "Broken pipe", "Connection closed by peer"])
def test_what_gloo_says_of_a_peer_that_went_away(sign: str) -> None:
    assert classify(RuntimeError(f"[pair.cc:1] writev [10.77.0.1]:5: {sign}")) == "lost_peer"
    assert classify(RuntimeError("a pipe broke")) == "error"


@pytest.mark.parametrize(
    ("end", "what"),
    [("os._exit(100)", "No space left on device"), ("os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS")],
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_rank_without_room_ends_the_job_without_an_ending(
    tmp_path: Path, end: str, what: str, first: int
) -> None:
    """Whichever rank ends first: one that lost its peer tells nothing of why."""
    (tmp_path / "logs").mkdir()
    late = "import os, signal, time\ntime.sleep(0.3 * (os.environ['RANK'] != sys.argv[1]))\n"
    code = f"import sys\n{late}\nif os.environ['RANK'] == '1':\n    {end}\nsys.exit(1)"
    network = Network(name="here", emulate=Emulation())
    with (
        Ranks(
            [sys.executable, "-c", code, str(first)], tmp_path, 2, per_host=2, network=network, hosts=None
        ) as ranks,
        pytest.raises(StorageError, match=what) as fault,
    ):
        ranks.watch(60, lambda _: 0)
    assert fault.value.path == tmp_path
