"""What ranks record, as it is read and judged."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import WirecostError
from wirecost.jobs.problems import why_unusable
from wirecost.jobs.steps import RankSteps, as_samples, read_steps, sharing_a_gpu
from wirecost.jobs.watch import is_measured
from wirecost.spec import JobExperiment
from wirecost.whatif.study_cells import read_cell, read_named

EXPERIMENT = JobExperiment.model_validate(
    {
        "job": {"name": "j", "command": "python t.py"},
        "network": {"name": "n", "emulate": {"rate": "1 Gb/s"}},
        "hosts": 2,
        "iterations": 3,
        "warmup": 2,
    }
)


def recording(rank: int, world_size: int = 2, ends: int = 5, **changes: Any) -> RankSteps:
    steps = RankSteps(
        f"h-{rank}", rank, world_size, 2, "gloo", "cpu", [100 * n for n in range(ends)], ended="done"
    )
    for name, value in changes.items():
        setattr(steps, name, value)
    return steps


def test_iterations_follow_each_other_and_those_of_the_profiler_are_left_out() -> None:
    rows = as_samples(recording(0, ends=9), warmup=2, iterations=3)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert [row["warmup"] for row in rows] == [True, False, False, False]
    assert all(row["end_ns"] - row["start_ns"] == 100 for row in rows)


def test_a_job_is_measured_when_every_rank_has_recorded_all() -> None:
    assert is_measured([recording(0), recording(1)], EXPERIMENT)
    assert not is_measured([], EXPERIMENT)
    assert not is_measured([recording(0)], EXPERIMENT)
    assert not is_measured([recording(0), recording(1, ended=None)], EXPERIMENT)
    # One rank of a world of one is seen before the other host's.
    assert not is_measured([recording(0, world_size=1)], EXPERIMENT)


@pytest.mark.parametrize(
    ("recordings", "words"),
    [
        ([], "--iteration-regex"),
        ([recording(0), recording(0)], "trained apart"),
        ([recording(0, world_size=1)], "1 rank of 1 although 2 were started"),
        ([recording(0, ends=2), recording(1, ends=2)], "none after a warm-up of 2"),
        (
            [recording(0), recording(1, ended="error", reason="full")],
            "rank 1's iterations can't be recorded: full",
        ),
    ],
)
def test_what_is_no_measurement_says_why(recordings: list[RankSteps], words: str) -> None:
    reason = why_unusable(recordings, EXPERIMENT)
    assert reason is not None and words in reason
    assert why_unusable([recording(0), recording(1)], EXPERIMENT) is None


@given(st.lists(st.one_of(st.binary(max_size=40), st.just(b'{"end":0,"t_ns":5}')), max_size=6))
def test_damaged_lines_are_left_out(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "steps").mkdir()
    header = json.dumps({"rank": 0, "world_size": 1, "backend": "gloo", "device": "cpu"}).encode()
    (folder / "steps" / "a-1.jsonl").write_bytes(b"\n".join([header, *lines]))
    (steps,) = read_steps(folder)
    assert (steps.rank, steps.world_size) == (0, 1)
    assert all(isinstance(end, int) for end in steps.ends_ns)


def test_ranks_that_share_a_gpu_are_named() -> None:
    assert sharing_a_gpu([recording(0), recording(1)]) == []
    assert sharing_a_gpu([recording(0, gpu="a"), recording(1, gpu="b")]) == []
    assert sharing_a_gpu([recording(0, gpu="a"), recording(1, gpu="b"), recording(2, gpu="a")]) == [0, 2]


def test_two_processes_of_a_rank_share_no_gpu_with_another_rank() -> None:
    twice = [recording(0, gpu="a"), recording(0, gpu="a")]
    assert sharing_a_gpu([*twice, recording(1, gpu="b")]) == []
    assert sharing_a_gpu([*twice, recording(1, gpu="a")]) == [0, 1]


def test_traces_of_ranks_that_share_a_gpu_answer_nothing(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    for rank in range(2):
        header = {"rank": rank, "world_size": 2, "device": "cuda", "gpu": "GPU-1"}
        (tmp_path / "steps" / f"host{rank}-1.jsonl").write_text(json.dumps(header) + "\n")
    assert [r.gpu for r in read_steps(tmp_path)] == ["GPU-1", "GPU-1"]
    with pytest.raises(WirecostError, match="2 ranks shared a GPU"):
        read_cell(tmp_path, 2)
    (tmp_path / "traces").mkdir()
    files = [tmp_path / "traces" / f"rank-{rank}.json" for rank in range(2)]
    for file in files:
        file.write_text('{"traceEvents": []}')
    for named in ([str(tmp_path / "traces")], [str(file) for file in files]):
        with pytest.raises(WirecostError, match="2 ranks shared a GPU"):
            read_named(named)


def test_a_file_without_a_header_is_no_rank(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "a-1.jsonl").write_text('{"end":0,"t_ns":5}\n{"rank":3,"world_size":2}\n')
    assert read_steps(tmp_path) == []
