"""The page: what it holds is what the traces say, its size is bounded, and hostile names stay text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.hostile import HOSTILE, write_hostile_job
from support.pages import Page
from support.tracefiles import Writer, make_job
from wirecost.trace import TraceError, TraceSet, page_data, read
from wirecost.trace.html import render_html


def load(folder: Path, *jobs: Any, **options: Any) -> TraceSet:
    for made in make_job(*jobs, **options):
        (folder / f"rank{made.rank}.json").write_bytes(made.text)
    return read(folder, timeline=True)


def data_of(traces: TraceSet) -> dict[str, Any]:
    return json.loads(Page(render_html(traces)).scripts[0])


def sums(rank: dict[str, Any]) -> list[int]:
    """The four sums over all cells, and the idle rest."""
    coded, total, i = rank["cells"], [0, 0, 0, 0, 0], 0
    while i < len(coded):
        code, length = coded[i], coded[i + 1]
        parts = coded[i + 2 : i + 6] if code == 5 else [length if code == k + 1 else 0 for k in range(4)]
        for k, part in enumerate([*parts, length - sum(parts)]):
            total[k] += part
        i += 6 if code == 5 else 2
    return total


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    write_hostile_job(tmp_path)
    page = Page(render_html(read(tmp_path, timeline=True, window="name:^</script>")))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert page.handlers == []  # and nothing is loaded from anywhere
    data = json.loads(page.scripts[0])
    assert any(HOSTILE in name for name in data["names"])
    assert data["ranks"][0]["steps"][0][0] == HOSTILE


@pytest.mark.parametrize("cells", [50_000, 20])
def test_the_page_draws_what_the_parts_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """Also where it is thinned: never idle as work."""
    monkeypatch.setattr(page_data, "_RANK_CELLS", cells)
    traces = load(tmp_path, 2, 3, seed=42)
    data = data_of(traces)
    assert len(data["ranks"]) == 2
    for drawn, trace in zip(data["ranks"], traces.traces, strict=True):
        p = trace.parts
        assert p is not None
        assert sums(drawn) == [
            p.compute_only_ns, p.overlapped_ns, p.exposed_comm_ns, p.exposed_memory_ns, p.idle_ns,
        ]  # fmt: skip
        assert drawn["kept"] == min(cells, drawn["total"])


def test_events_calls_and_kernels_are_those_of_the_traces(tmp_path: Path) -> None:
    traces = load(tmp_path, 2, 3, seed=43, late=1)
    data = data_of(traces)
    zero = min(t.start_ns for t in traces.traces)
    zero = min([zero, *(i.window.start_ns for t in traces.traces for i in t.iterations)])
    for drawn, trace, waits in zip(data["ranks"], traces.traces, traces.waits, strict=True):
        at, found = drawn["start"], []
        for gap, length, name, stream, kind in zip(*[iter(drawn["events"])] * 5, strict=True):
            at += gap
            found.append((at, at + length, data["names"][name], drawn["streams"][stream], kind))
        calls = trace.calls
        assert [f[:2] for f in found if f[4] == 1] == [
            (int(s) - zero, int(e) - zero) for s, e in zip(calls.start_ns, calls.end_ns, strict=True)
        ]
        assert {f[3] for f in found} == {"stream 7", "stream 20"}
        assert [(found[event][4], wait) for event, _, _, wait, _ in drawn["calls"]] == [(1, int(w)) for w in waits]
        assert {data["ops"][op] for _, op, _, _, _ in drawn["calls"]} == {"all_reduce in group 0 (default_pg)"}
    count = {data["names"][name]: count for name, _, count, _, _ in data["kernels"]}
    assert sum(count.values()) == sum(r["total"] for r in data["ranks"])
    assert max(count.values()) == count["Memcpy HtoD (Pinned -> Device)"] or len(count) > 1


def test_the_size_of_the_page_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "_PAGE_CELLS", 600)
    traces = load(tmp_path, 4, 30, kernels=20)
    data = data_of(traces)
    limit = 600 // 4
    assert len(data["ranks"]) == 4
    for rank in data["ranks"]:
        assert 0 < len(rank["cells"]) <= 6 * limit
        assert rank["kept"] == len(rank["events"]) // 5 == limit < rank["total"]


def test_long_names_do_not_make_the_page_long(tmp_path: Path) -> None:
    writer = Writer()
    for k in range(2_000):
        writer.complete("kernel", f"{k}" + "<x>" * 1_500, 0, 7, 1_000_000 + 10_000 * k, 2_000, {"stream": 7})
    text = writer.text({"rank": 0, "world_size": 1}, 0)
    (tmp_path / "rank0.json").write_bytes(text)
    page = render_html(read(tmp_path, timeline=True))
    assert len(text) > 9_000_000 > 3_000_000 > len(page)
    assert len(json.loads(Page(page).scripts[0])["names"]) == 2_000


def test_bars_and_findings_are_there_without_scripts(tmp_path: Path) -> None:
    traces = load(tmp_path, 4, 6, kernels=12, late=2)
    text = render_html(traces)
    page = Page(text)
    assert "rank 2" in page.text and "exposed communication: wait" in page.text
    assert text.count('class="row blamed"') == 1
    assert text.index("Ranks by category") < text.index("Time line")
    data = json.loads(page.scripts[0])
    go = text[text.index('class="go"') :].split(">")[0]
    fields = dict(part.split("=") for part in go.split() if "=" in part)
    start, end = (int(fields[k].strip('"')) for k in ("data-from", "data-to"))
    rank = data["ranks"][int(fields["data-rank"].strip('"'))]
    assert rank["start"] <= start < end <= rank["end"]


def test_without_a_time_line_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(make_job(1, 1)[0].text)
    with pytest.raises(TraceError, match="timeline"):
        render_html(read(tmp_path))
