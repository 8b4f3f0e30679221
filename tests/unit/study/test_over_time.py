"""The network over a run's time: bytes in spans, use of the link, events, what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.counters import SECOND, write_counters, write_events
from wirecost.counters import Row
from wirecost.study.events import EventKind, event_spans, read_events
from wirecost.study.over_time import read_over_time, series_of
from wirecost.study.store import StoreError

MB = 10**6


def rows(*totals: int, device: str = "eth0") -> list[Row]:
    """A sample a second; sent as many bytes as `totals` say, received half of it."""
    return [Row(n * SECOND, 0, "ethernet", device, t // 2, t) for n, t in enumerate(totals)]


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=20), st.data())
def test_spans_add_up_to_the_total(steps: list[int], data: st.DataObject) -> None:
    totals = [0]
    for step in steps:
        totals.append(totals[-1] + step + MB)
    (series,) = series_of(rows(*totals))
    cut = data.draw(st.integers(0, (len(totals) - 1) * SECOND))
    first, second = series.moved(0, cut), series.moved(cut, len(totals) * SECOND)
    assert first[1] + second[1] == pytest.approx(totals[-1])
    assert series.moved(-SECOND, 0) == (0, 0)  # before the first sample nothing is known to have passed


def test_who_took_part() -> None:
    idle, busy, lo = rows(0, 100, device="eth1"), rows(0, 9 * MB), rows(0, 99 * MB, device="lo")
    assert [s.device for s in series_of(idle + busy + lo)] == ["eth0"]
    assert [s.device for s in series_of(idle + lo)] == ["lo"]
    hosts = [r for n in (10, 2, 0) for r in rows(0, 9 * MB, device=f"host{n}")]
    assert [s.device for s in series_of(hosts)] == ["host0", "host2", "host10"]
    assert series_of([Row(0, 0, "pcie", "gpu0", rx_Bps=1.0), Row(0, 0, "cpu", "softirq")]) == ()


def test_link_use_is_that_of_the_measured_iterations(tmp_path: Path) -> None:
    # Ten seconds: 5 MB/s in each but the warm-up's, in which it is 50, and the pause's.
    write_counters(tmp_path, [50, 5, 5, 0, 5, 10])
    over_time = read_over_time(tmp_path)
    assert over_time is not None
    use = over_time.link_use()
    assert use is not None
    assert (use.device, use.mean_Bps, use.peak_Bps) == ("host0", 25 * MB / 4, 10 * MB)


def test_an_iteration_begins_when_the_last_rank_is_done_with_a_checkpoint(tmp_path: Path) -> None:
    write_counters(tmp_path, [50, 5, 5, 0, 5, 10])
    before = read_over_time(tmp_path)
    assert before is not None
    last = before.iterations[-1]
    half = (last.start_ns + last.end_ns) // 2
    after = len(before.iterations) - 1
    write_events(tmp_path, 0, ("checkpoint", after, last.start_ns - SECOND, last.start_ns))
    write_events(tmp_path, 1, ("checkpoint", after, last.start_ns - SECOND, half))
    found = read_over_time(tmp_path)
    assert found is not None
    assert found.iterations[:-1] == before.iterations[:-1]
    assert (found.iterations[-1].start_ns, found.iterations[-1].end_ns) == (half, last.end_ns)


def test_a_run_without_counters_has_none(tmp_path: Path) -> None:
    assert read_over_time(tmp_path) is None


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    write_counters(tmp_path, [5, 5, 5, 5, 5, 5])
    (tmp_path / "counters.jsonl").write_text('{"kind": 3}\n')
    with pytest.raises(StoreError, match=r"counters\.jsonl' line 1 is not a sample"):
        read_over_time(tmp_path)
    write_counters(tmp_path, [5, 5, 5, 5, 5, 5])
    (tmp_path / "samples" / "rank-0.jsonl").write_text("[]\n")
    with pytest.raises(StoreError, match=r"rank-0\.jsonl: can't be read as samples"):
        read_over_time(tmp_path)


def test_events_over_ranks(tmp_path: Path) -> None:
    write_events(tmp_path, 0, ("checkpoint", 3, 10, 20), ("validation", 3, 21, 30))
    write_events(tmp_path, 1, ("checkpoint", 3, 12, 25))
    by_rank = read_events(tmp_path)
    assert {rank: len(events) for rank, events in by_rank.items()} == {0: 2, 1: 1}
    assert by_rank[0][0].bytes == 1
    assert [(s.kind, s.after_iteration, s.start_ns, s.end_ns) for s in event_spans(by_rank)] == [
        (EventKind.CHECKPOINT, 3, 10, 25),
        (EventKind.VALIDATION, 3, 21, 30),
    ]
    path = tmp_path / "events" / "rank-1.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "validat')  # killed while writing
    assert read_events(tmp_path) == by_rank
    path.write_text(json.dumps({"kind": "lunch"}) + "\n")
    with pytest.raises(StoreError, match=r"rank-1\.jsonl: line 1 is no event \(kind: "):
        read_events(tmp_path)
    assert read_events(tmp_path / "none") == {}
