"""Reductions give the answer of the traces, and damaged ones are refused in a line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.tracefiles import write_job
from wirecost.cli import application
from wirecost.trace import TraceError, read
from wirecost.trace.rank import Options
from wirecost.trace.reduce import reduce_traces
from wirecost.trace.reduction import MAGIC, SUFFIX, encode_reduction, read_reduction


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_job(folder, 3, 4, kernels=6, late=1)
    return folder


def reduced(job: Path, folder: Path, **options: str) -> list[Path]:
    return reduce_traces(sorted(job.iterdir()), folder, **options)  # pyright: ignore[reportArgumentType]


def test_reductions_of_every_rank_give_the_answer_of_the_traces(job: Path, tmp_path: Path) -> None:
    # Each rank's file is reduced by a call of its own, as on its own machine.
    for file in sorted(job.iterdir()):
        (path,) = reduce_traces([file], tmp_path)
        assert path.stat().st_size < file.stat().st_size
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"rank-{n}{SUFFIX}" for n in range(3)]
    assert read(tmp_path).to_dict() == read(job).to_dict()
    assert read(tmp_path).breakdown == read(job).breakdown


def test_a_reduced_job_can_be_drawn(job: Path, tmp_path: Path) -> None:
    reduced(job, tmp_path / "small")
    run = CliRunner().invoke(
        application(), ["trace", str(tmp_path / "small"), "--html", str(tmp_path / "page.html")]
    )
    assert run.exit_code == 0, run.output
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_reductions_and_traces_are_read_together(job: Path, tmp_path: Path) -> None:
    first, *others = sorted(job.iterdir())
    small = reduce_traces([first], tmp_path)
    assert read([*small, *others]).to_dict() == read(job).to_dict()


def test_the_command_writes_reductions_and_reads_them(job: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke(application(), ["trace", str(job), "--reduce", str(tmp_path / "small")])
    assert run.exit_code == 0
    assert run.output.count("wrote ") == 3
    answers = [CliRunner().invoke(application(), ["trace", str(p)]).output for p in (job, tmp_path / "small")]
    assert answers[0] == answers[1]


def test_another_window_than_that_of_the_reduction_is_refused(job: Path, tmp_path: Path) -> None:
    reduced(job, tmp_path, window="whole")
    assert read(tmp_path).to_dict() == read(job, window="whole").to_dict()
    with pytest.raises(TraceError, match="was reduced with --window whole; reduce the trace again"):
        read(tmp_path, window="launches")
    with pytest.raises(TraceError, match="was reduced with another --comm-pattern"):
        read(tmp_path, comm_patterns=["mine"])


def test_outputs_of_the_whole_job_do_not_go_with_a_reduction(job: Path, tmp_path: Path) -> None:
    from wirecost.errors import WirecostError

    run = CliRunner().invoke(
        application(), ["trace", str(job), "--reduce", str(tmp_path), "--html", str(tmp_path / "x.html")]
    )
    assert isinstance(run.exception, WirecostError)
    assert "--reduce writes reductions alone" in str(run.exception)


def test_the_tasks_of_a_slurm_step_share_the_traces_of_their_node(job: Path, tmp_path: Path) -> None:
    for task in range(4):
        step = {
            "SLURM_PROCID": str(task), "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
            "SLURM_LOCALID": str(task % 2),
        }  # fmt: skip
        folder = tmp_path / f"node-{task // 2}"
        run = CliRunner().invoke(application(), ["trace", str(job), "--reduce", str(folder)], env=step)
        assert run.exit_code == 0, run.output
        assert run.output.count("wrote") == (2, 1)[task % 2]
    # Each node has reduced all traces that it sees.
    assert [len(list(folder.iterdir())) for folder in sorted(tmp_path.iterdir())] == [3, 3]


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(TraceError, match=r"x\.json"):
        reduce_traces([tmp_path / "x.json"], tmp_path / "small")


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"rank-0{SUFFIX}"
    path.write_bytes(b"wirecost reduced trace 1\n...")
    with pytest.raises(TraceError, match="a reduction of another version of wirecost; reduce the trace again"):
        read(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_reduction_is_refused_or_still_sound(
    job: Path, tmp_path: Path, place: float, byte: int, cut: bool
) -> None:
    (path,) = reduce_traces([sorted(job.iterdir())[0]], tmp_path)
    raw = bytearray(zstandard.ZstdDecompressor().decompress(path.read_bytes()[len(MAGIC) :]))
    at = int(place * (len(raw) - 1))
    raw[at] = byte
    del raw[at if cut else len(raw) :]
    path.write_bytes(MAGIC + zstandard.ZstdCompressor().compress(bytes(raw)))
    try:
        traces = read_reduction(path, Options())
    except TraceError as error:
        assert "damaged reduction" in str(error)
        assert "\n" not in str(error)
    else:
        calls = traces[0].calls
        assert len({len(getattr(calls, name)) for name in ("start_ns", "end_ns", "op", "cause", "stream")}) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [("op", 99), ("group", -1), ("iteration", 99), ("after", 10**9), ("cause", 99), ("end_ns", 0)],
)
def test_indices_outside_of_their_lists_are_refused(job: Path, tmp_path: Path, column: str, value: int) -> None:
    (trace,) = read(sorted(job.iterdir())[0]).traces
    changed = getattr(trace.calls, column).copy()
    changed[0] = value
    wrong = msgspec.structs.replace(trace, calls=msgspec.structs.replace(trace.calls, **{column: changed}))
    path = tmp_path / f"rank-0{SUFFIX}"
    path.write_bytes(encode_reduction(Options(), [wrong]))
    with pytest.raises(TraceError, match="damaged reduction"):
        read_reduction(path, Options())
    short = msgspec.structs.replace(trace.calls, stream=np.zeros(1, dtype=np.int64))
    path.write_bytes(encode_reduction(Options(), [msgspec.structs.replace(trace, calls=short)]))
    with pytest.raises(TraceError, match="the column stream has another length"):
        read_reduction(path, Options())


def test_a_reduction_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"rank-0{SUFFIX}"
    # A frame that says that it holds 2 GiB: magic number, single segment with an 8-byte size, RFC 8878.
    path.write_bytes(MAGIC + bytes.fromhex("28b52ffde0") + (1 << 31).to_bytes(8, "little") + bytes(16))
    with pytest.raises(TraceError, match="damaged reduction"):
        read(path)


def test_waits_that_explain_no_later_one_are_dropped_without_a_difference(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = read(job).to_dict()
    monkeypatch.setattr("wirecost.trace.blame._MOST_WAITS", 0)
    assert read(job).to_dict() == kept
