"""Hostile names stay data: in the page, on the terminal, in every format."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.hostile import write_hostile_job
from support.tracefiles import make_job
from wirecost.breakdown import Breakdown
from wirecost.cli import application
from wirecost.errors import WirecostError
from wirecost.trace import TraceError, TraceSet, read
from wirecost.trace.html import render_html


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    write_hostile_job(tmp_path)
    return tmp_path


def test_the_terminal_sees_no_escape(hostile: Path) -> None:
    result = CliRunner().invoke(application(), ["trace", str(hostile)])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    assert "\x07" not in result.output
    assert "[bold]" in result.output


def test_json_has_the_documented_form(tmp_path: Path) -> None:
    for m in make_job(2, 2, seed=43):
        (tmp_path / f"rank{m.rank}.json").write_bytes(m.text)
    result = CliRunner().invoke(application(), ["trace", str(tmp_path), "--format", "json"])
    document = json.loads(result.stdout)
    keys = {
        "window_ns", "compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns",
        "compute_ns", "comm_ns",
    }  # fmt: skip
    rank = document["ranks"][0]
    assert {"file", "rank", "window", "iterations", "collectives", "problems", "window_source"} <= set(rank)
    assert set(rank["window"]) == keys
    assert keys | {"name", "window_source", "cut"} <= set(rank["iterations"][0])
    assert {
        "op", "group", "group_size", "count", "bytes", "duration_ns", "wait_ns", "transfer_ns", "busbw_Bps",
    } <= set(rank["collectives"][0])  # fmt: skip
    assert {"schema_version", "ranks", "skew", "stragglers", "imbalance", "top_exposed", "summary"} <= set(
        document
    )


def test_tables_in_every_format(tmp_path: Path) -> None:
    import polars

    traces = tmp_path / "traces"
    traces.mkdir()
    for m in make_job(2, 2, seed=44):
        (traces / f"rank{m.rank}.json").write_bytes(m.text)
    run = CliRunner()
    out = run.invoke(application(), ["trace", str(traces), "--format", "csv", "--table", "calls"])
    assert out.stdout.splitlines()[0].startswith("rank,op,group,iteration,start_ns")
    assert len(out.stdout.splitlines()) == 5
    for kind in ("csv", "parquet"):
        done = run.invoke(application(), ["trace", str(traces), "--format", kind, "--out", str(tmp_path / kind)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / kind / f"iterations.{kind}").exists()
    assert polars.read_parquet(tmp_path / "parquet" / "iterations.parquet").height == 4


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_that_storage_does_not_take_are_one_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / "rank0.json").write_bytes(make_job(1, 2, seed=44)[0].text)
    done = subprocess.run(
        [sys.executable, "-m", "wirecost", "trace", "rank0.json", "--format", kind, "--out", "out"],
        cwd=tmp_path,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (200, 200)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "wirecost: out: can't be written: File too large\n"


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_the_answer_reads_well_at_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """COLUMNS is honoured off a terminal; no line is longer."""
    for made in make_job(4, 5, late=2):
        (tmp_path / f"rank{made.rank}.json").write_bytes(made.text)
    monkeypatch.setenv("COLUMNS", str(columns))
    result = CliRunner().invoke(application(), ["trace", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= columns
    heads = [line.split()[0] for line in lines if line[:1].isupper()][:5]
    assert heads == ["Iteration", "Communication", "Cause", "To", "Next"]
    assert any(line.startswith("2 <") for line in lines)


def test_every_table_is_printed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirecost.trace.tables import NAMES

    for made in make_job(2, 2, late=1):
        (tmp_path / f"rank{made.rank}.json").write_bytes(made.text)
    monkeypatch.setenv("COLUMNS", "80")
    run = CliRunner()
    listed = run.invoke(application(), ["trace", "--help"], env={"COLUMNS": "400"}).output
    for name in NAMES:
        assert name in listed
        result = run.invoke(application(), ["trace", str(tmp_path), "--table", name])
        assert result.exit_code == 0, result.output
        assert len(result.output.splitlines()) >= 1
    both = run.invoke(application(), ["trace", str(tmp_path), "--table", "ranks", "--table", "problems"])
    assert "Ranks by category" in both.output and "first_collective" in both.output
    wrong = run.invoke(application(), ["trace", str(tmp_path), "--table", "rank"])
    assert isinstance(wrong.exception, WirecostError) and "ranks" in str(wrong.exception)


def test_a_table_comes_as_json_too(tmp_path: Path) -> None:
    for made in make_job(2, 2):
        (tmp_path / f"rank{made.rank}.json").write_bytes(made.text)
    result = CliRunner().invoke(
        application(), ["trace", str(tmp_path), "--format", "json", "--table", "calls", "--table", "skew"]
    )
    document = json.loads(result.stdout)
    assert {name: len(rows) for name, rows in document.items()} == {"calls": 4, "skew": 2}


@pytest.mark.parametrize("name", ["rank0.json", "/dev/zero"])
def test_pipes_and_devices_are_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "rank0.json")
    with pytest.raises(TraceError, match="not a regular file"):
        read(tmp_path / name)


def test_paths_that_name_nothing_are_refused() -> None:
    for path, says in (("", "empty path"), ("a" * 300 + ".json", "File name too long")):
        with pytest.raises(TraceError, match=says):
            read(path)
    result = CliRunner().invoke(application(), ["compare", "a" * 300, "b"])
    assert isinstance(result.exception, WirecostError)


@pytest.mark.parametrize("small_bytes", [1 << 24, 0])
def test_file_names_need_not_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int) -> None:
    """With and without worker processes."""
    monkeypatch.setattr("wirecost.trace.pool._SMALL_BYTES", small_bytes)
    for made in make_job(2, 1):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/rank%d_\xff.json" % made.rank)).write_bytes(made.text)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/rank2_\xff.json")).write_bytes(b"")
    traces = read(tmp_path, timeline=True)
    assert [Path(f).name for f in traces.ranks["file"]] == ["rank0_\\xff.json", "rank1_\\xff.json"]
    assert "rank2_\\xff.json" in traces.diagnostics.filter(code="unreadable")["message"][0]
    assert Breakdown.model_validate_json(traces.breakdown.model_dump_json()) == traces.breakdown
    assert "rank1_" in render_html(traces)


def test_read_takes_strings_paths_and_globs(tmp_path: Path) -> None:
    for m in make_job(12, 1, seed=45):
        (tmp_path / f"rank{m.rank}.json").write_bytes(m.text)
    assert [t.rank for t in read(str(tmp_path / "rank*.json")).traces] == list(range(12))
    assert len(read([tmp_path / "rank1.json", tmp_path / "rank1.json"]).traces) == 1
    assert isinstance(read(tmp_path), TraceSet)
    for missing in (tmp_path / "no", str(tmp_path / "*.nope")):
        with pytest.raises(TraceError):
            read(missing)
    with pytest.raises(TraceError):
        read([])
