"""Recordings of jobs on processors (gloo), whose times follow by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wirecost.errors import WirecostError
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks

TRAIN, WORKER = 7, 15
COMPUTE_US, TRANSFER_US = 1000.0, 3000.0


def write_job(
    folder: Path,
    *,
    steps: int = 4,
    shapes: bool = True,
    slow: float = 0.0,
    transfer: float = TRANSFER_US,
    late: float = 0.0,
) -> Path:
    """Writes the traces of two ranks. A step computes, starts an all-reduce of 4 MB, computes beside it, and waits.

    Args:
        slow: what rank 1 computes longer before its all-reduce, in us.
        transfer: time of the all-reduce in us.
        late: how long after the wait for it the annotation of the all-reduce ends, in us.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(2):
        events: list[dict[str, Any]] = []

        def event(category: str, name: str, start: float, length: float, tid: int, **args: Any) -> None:
            events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid,  # noqa: B023
                           "ts": round(start, 3), "dur": round(length, 3), "args": args})  # fmt: skip

        begin = 1e6
        for step in range(steps):
            arrived = begin + COMPUTE_US
            issued = arrived + slow * rank
            event("cpu_op", "aten::mm", begin, issued - begin, TRAIN)
            event("cpu_op", "c10d::allreduce_", issued, 20.0, TRAIN)
            shape = {"Input Dims": [[1_000_000]], "Input type": ["float"]} if shapes else {}
            end = arrived + slow + 50.0 + transfer
            event("user_annotation", "gloo:all_reduce", issued + 50.0, end + late - issued - 50.0, WORKER, **shape)
            event("cpu_op", "aten::add", issued + 20.0, COMPUTE_US, TRAIN)
            event("cpu_op", "optimizer", end + 10.0, 500.0 + late, TRAIN)
            following = end + late + 520.0
            event("user_annotation", f"ProfilerStep#{step}", begin, following - begin, TRAIN)
            begin = following
        info = {"backend": "gloo", "rank": rank, "world_size": 2}
        document = {"distributedInfo": info, "baseTimeNanoseconds": 10**18, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return folder


def job(folder: Path) -> Job:
    return Job(read_ranks([folder]))


def test_a_recording_replays_to_its_own_length(tmp_path: Path) -> None:
    replay = job(write_job(tmp_path)).replay()
    assert replay.error == pytest.approx(0, abs=0.002)
    assert replay.iteration_ms == pytest.approx((COMPUTE_US + 50 + TRANSFER_US + 520) / 1e3, rel=0.002)


def test_another_network_is_answered_with_an_interval(tmp_path: Path) -> None:
    answer = answer_to(job(write_job(tmp_path)), Question(bandwidth_bps=1e9))
    transfer_us = 4e6 * 8 / 1e9 * 1e6
    assert answer.iteration_ms is None
    assert answer.low_ms < (COMPUTE_US + transfer_us + 570) / 1e3 < answer.high_ms
    assert "share the processor's cores" in (answer.why_interval or "")


@pytest.mark.parametrize("late_us", [0.0, 1500.0, 6000.0])
def test_a_wait_whose_collective_seems_to_end_late_is_no_computing(tmp_path: Path, late_us: float) -> None:
    # What follows the wait takes the core from gloo's thread before that ends its annotation.
    folder = write_job(tmp_path, transfer=200_000.0, late=late_us)
    answer = answer_to(job(folder), Question(bandwidth_bps=1e9))
    assert answer.low_ms < (COMPUTE_US + 4e6 * 8 / 1e9 * 1e6 + 570 + late_us) / 1e3 < answer.high_ms < 60


def test_without_shapes_the_transfer_is_not_known(tmp_path: Path) -> None:
    answer = answer_to(job(write_job(tmp_path, shapes=False)), Question(bandwidth_bps=1e9))
    assert [d.code for d in answer.diagnostics] == ["transfer_unknown"]


def test_a_slow_rank_is_found(tmp_path: Path) -> None:
    costs = job(write_job(tmp_path, slow=800.0)).straggler_ms()
    assert next(iter(costs)) == 1
    assert costs[1] == pytest.approx(0.8, rel=0.05)


def test_other_buckets_are_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(WirecostError, match="recordings of processors don't tell which gradients"):
        answer_to(job(write_job(tmp_path)), Question(bucket_mib=1))


def test_a_collective_that_the_training_thread_did_not_issue_is_refused(tmp_path: Path) -> None:
    write_job(tmp_path)
    path = tmp_path / "rank0.json"
    document = json.loads(path.read_text())
    document["traceEvents"] = [e for e in document["traceEvents"] if e["name"] != "c10d::allreduce_"]
    path.write_text(json.dumps(document))
    with pytest.raises(WirecostError, match="0 collectives are issued by the training thread and 4 run by gloo"):
        job(tmp_path)
