"""Traces that don't belong together or lack something: said in one line, with what is still possible."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from support.ddp_traces import Job as Recorded
from support.ddp_traces import write_job
from wirecost.errors import WirecostError
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.nodes import NONE, WORK, Step
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks
from wirecost.whatif.simulate import Speeds, replay


def change(path: Path, **keys: object) -> dict:
    document = json.loads(path.read_text())
    document["distributedInfo"] |= keys
    path.write_text(json.dumps(document))
    return document


def test_traces_of_jobs_of_different_sizes_are_refused(tmp_path: Path) -> None:
    write_job(tmp_path, Recorded())
    change(tmp_path / "rank1.json", world_size=8)
    with pytest.raises(WirecostError, match=r"rank0.json is of a job of 2 ranks and .*rank1.json of one of 8"):
        read_ranks([tmp_path])


def test_ranks_without_common_communication_are_replayed_alone(tmp_path: Path) -> None:
    write_job(tmp_path, Recorded())
    path = tmp_path / "rank1.json"
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        if "Process Group Name" in event["args"]:
            event["args"]["Process Group Name"] = "another job's"
            event["args"]["Process Group Ranks"] = "[4, 5]"
    path.write_text(json.dumps(document))
    job = Job(read_ranks([tmp_path]))
    assert "whatif_unmatched" in {d.code for d in job.diagnostics}
    assert answer_to(job, Question(scale_communication=2)).high_ms > 0


def test_what_a_truncated_file_holds_is_replayed_with_a_warning(tmp_path: Path) -> None:
    write_job(tmp_path, Recorded(steps=6))
    text = gzip.compress((tmp_path / "rank1.json").read_bytes())
    (tmp_path / "rank1.json").unlink()
    (tmp_path / "rank1.json.gz").write_bytes(text[: int(0.8 * len(text))])
    job = Job(read_ranks([tmp_path]))
    found = {d.code: d.message for d in job.diagnostics}
    assert "rank1.json.gz" in found["whatif_truncated"]
    assert answer_to(job, Question(scale_communication=2)).high_ms > 0


def test_ranks_that_began_to_record_at_different_steps_are_replayed_over_the_common_ones(tmp_path: Path) -> None:
    write_job(tmp_path, Recorded(steps=5))
    whole = Job(read_ranks([tmp_path]))
    path = tmp_path / "rank1.json"
    document = json.loads(path.read_text())
    (first,) = (e for e in document["traceEvents"] if e["name"] == "ProfilerStep#1")
    document["traceEvents"] = [e for e in document["traceEvents"] if e["ts"] >= first["ts"]]
    path.write_text(json.dumps(document))
    later = Job(read_ranks([tmp_path]))
    assert (whole.graph.step_count, later.graph.step_count) == (5, 4)
    assert abs(later.error) < 0.001
    assert later.replay().iteration_ms == pytest.approx(whole.replay().iteration_ms, rel=0.002)


def test_a_file_that_is_cut_before_any_device_event_is_refused(tmp_path: Path) -> None:
    text = gzip.compress(
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1,'
    )
    (tmp_path / "rank0.json.gz").write_bytes(text[:-12])
    with pytest.raises(WirecostError, match="cut off before any device event"):
        read_ranks([tmp_path])


def test_a_wait_for_work_that_the_step_before_lacks_is_left_out() -> None:
    def step(count: int, waits: dict[int, list[tuple[int, int]]]) -> Step:
        zeros = [0.0] * count
        return Step(
            [WORK] * count, [NONE] * count, [0] * count, zeros, zeros, [10.0] * count, [NONE] * count,
            [0] * count, waits, 0, NONE,
        )  # fmt: skip

    short, long = step(1, {}), step(2, {0: [(1, 5)]})
    (times,) = replay([[short, long]], [1], [], [], Speeds())
    assert times.end == 30.0
