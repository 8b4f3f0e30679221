"""Hostile names stay data: in the page, on the terminal, in every format."""

from __future__ import annotations

import html.parser
import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.tracefiles import make_job
from wirecost.breakdown import Breakdown
from wirecost.cli import application
from wirecost.cli.trace_view import show
from wirecost.errors import WirecostError
from wirecost.trace import TraceError, TraceSet, read
from wirecost.trace.html import render_html

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u001b[31m\u202ered[bold]\u0007&amp;"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Two ranks in which whatever can carry a name carries a hostile one."""
    for made in make_job(2, 2, seed=41):
        document = json.loads(made.text)
        for event in document["traceEvents"]:
            if event.get("cat") == "kernel" and "nccl" not in event["name"]:
                event["name"] = HOSTILE
            if "nccl" in event["name"]:
                event["args"]["Process Group Name"] = HOSTILE
                event["args"]["Process Group Description"] = HOSTILE + "2"
        document["traceEvents"].append(
            {"ph": "X", "cat": "gpu_user_annotation", "name": HOSTILE, "pid": 0, "tid": 7, "ts": 1e6, "dur": 60.0}
        )
        document["traceEvents"].append({"ph": "X", "cat": HOSTILE, "name": HOSTILE, "ts": 1, "dur": 1})
        (tmp_path / f"rank{made.rank}.json").write_text(json.dumps(document))
    return tmp_path


class Page(html.parser.HTMLParser):
    """Collects what a browser would see of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.handlers += [value or "" for name, value in attrs if name in ("src", "href")]
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def test_names_cannot_break_out_of_the_page(hostile: Path) -> None:
    page = Page(render_html(read(hostile, timeline=True, window=f"name:{'^</script>'}")))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert page.handlers == []  # and nothing is loaded from anywhere
    data = json.loads(page.scripts[0])
    assert any(HOSTILE in name for name in data["names"])
    assert data["ranks"][0]["steps"][0]["name"] == HOSTILE


def test_the_page_draws_what_the_parts_say(tmp_path: Path) -> None:
    made = make_job(2, 3, seed=42)
    for m in made:
        (tmp_path / f"rank{m.rank}.json").write_bytes(m.text)
    traces = read(tmp_path, timeline=True)
    data = json.loads(Page(render_html(traces)).scripts[0])
    for drawn, trace in zip(data["ranks"], traces.traces, strict=True):
        assert trace.parts is not None
        lengths = {kind: sum(drawn[kind][1::2]) for kind in ("compute", "overlapped", "exposed", "memory")}
        assert lengths == {
            "compute": trace.parts.compute_only_ns,
            "overlapped": trace.parts.overlapped_ns,
            "exposed": trace.parts.exposed_comm_ns,
            "memory": trace.parts.exposed_memory_ns,
        }
        assert len(drawn["calls"]) == 3


def test_without_a_time_line_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(make_job(1, 1)[0].text)
    with pytest.raises(TraceError, match="timeline"):
        render_html(read(tmp_path))


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
        done = run.invoke(
            application(), ["trace", str(traces), "--format", kind, "--output", str(tmp_path / kind)]
        )
        assert done.exit_code == 0, done.output
        assert (tmp_path / kind / f"iterations.{kind}").exists()
    assert polars.read_parquet(tmp_path / "parquet" / "iterations.parquet").height == 4


def test_a_terminal_of_80_columns_shows_what_a_row_is_of(tmp_path: Path) -> None:
    for made in make_job(2, 1):
        (tmp_path / f"rank{made.rank}.json").write_bytes(made.text)
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "wirecost.cli.trace_view.Console", lambda **_: Console(file=stream, width=80, force_terminal=True)
        )
        show(read(tmp_path))
    shown = stream.getvalue()
    assert shown.count("ProfilerStep#3") >= 2
    assert "all_reduce" in shown
    assert shown.count("cpu_step") == 2
    assert "aligned," in shown


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.json")
    for path in (tmp_path / "rank0.json", "/dev/zero"):
        with pytest.raises(TraceError, match="not a regular file"):
            read(path)


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
    assert "rank2_\\xff.json" in traces.problems.filter(code="unreadable")["message"][0]
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
