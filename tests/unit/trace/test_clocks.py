"""Offsets of the ranks' clocks, against clocks that were set wrong on purpose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.timelines import ALL_REDUCE, BASE_NS, COMM_STREAM, Timeline
from wirecost.trace import TraceSet, read

GROUP = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
         "Process Group Name": "0"}  # fmt: skip


def job(
    folder: Path, offsets_us: list[float], *, late: list[float] | None = None, count: int = 12, jitter_us: float = 0,
    drift: list[float] | None = None, base: int | None = BASE_NS, seed: int = 0,
) -> TraceSet:  # fmt: skip
    """All-reduces of 200 us every millisecond on ranks whose clocks are ahead by `offsets_us` and drift apart;
    rank r comes `late[r]` to each."""
    draw = random.Random(seed)
    ranks = len(offsets_us)
    lines = [Timeline(rank=r, world=ranks) for r in range(ranks)]
    for line in lines:
        line.top["baseTimeNanoseconds"] = base
        if base is None:
            del line.top["baseTimeNanoseconds"]
    for k in range(count):
        ready = [1000 * k + 500 + (late or [0] * ranks)[r] for r in range(ranks)]
        for r, line in enumerate(lines):
            end = max(ready) + 200 + draw.uniform(0, jitter_us)
            off = offsets_us[r] + (drift or [0] * ranks)[r] * 1000 * k
            line.device(round(1000 * k + off, 3), 400)
            line.device(
                round(ready[r] + off, 3), round(end - ready[r], 3), ALL_REDUCE, stream=COMM_STREAM,
                **{**GROUP, "Group size": ranks},
            )  # fmt: skip
    for line in lines:
        line.write(folder)
    return read(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    offsets=st.lists(st.integers(-2000, 2000), min_size=1, max_size=4),
    late=st.integers(0, 300),
    seed=st.integers(0, 99),
)
def test_an_offset_is_found_and_no_rank_is_blamed_for_it(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], late: int, seed: int
) -> None:
    offsets_us = [0.0, *map(float, offsets)]
    lateness = [0.0] * len(offsets) + [float(late)]
    traces = job(tmp_path_factory.mktemp("clocks"), offsets_us, late=lateness, jitter_us=4, seed=seed)
    assert [c.rank for c in traces.clocks] == list(range(1, len(offsets_us)))
    for clock in traces.clocks:
        assert clock.offset_ns == pytest.approx(1000 * offsets_us[clock.rank], abs=4000)
        assert clock.taken_out == (abs(offsets_us[clock.rank]) > 20) or 16 < abs(offsets_us[clock.rank]) < 24
    for m in traces.matched:
        # What is no larger than 20 us may be left in.
        assert m.wait_ns.tolist() == pytest.approx([1000 * late] * len(offsets) + [0], abs=45_000)
    blamed = {s.rank for s in traces.stragglers if s.late}
    assert not late > 50 or len(offsets_us) - 1 in blamed


def test_a_rank_that_is_always_late_is_no_clock_that_is_off(tmp_path: Path) -> None:
    traces = job(tmp_path, [0, 0], late=[0, 150])
    assert [c.taken_out for c in traces.clocks] == [False]
    assert {tuple(m.wait_ns.tolist()) for m in traces.matched} == {(150_000, 0)}
    assert (traces.stragglers[0].rank, traces.stragglers[0].late) == (1, 11)


def test_a_clock_that_drifts_is_followed(tmp_path: Path) -> None:
    traces = job(tmp_path, [0, 100], drift=[0, 50e-6], count=2000, jitter_us=4)
    (clock,) = traces.clocks
    assert clock.drift_ppm == pytest.approx(50, rel=0.05)
    assert clock.scatter_ns < 2000
    assert max(int(m.wait_ns.max()) for m in traces.matched) < 10_000


def test_clocks_without_a_common_base_are_joined(tmp_path: Path) -> None:
    traces = job(tmp_path, [0, 123456.789], late=[70, 0], base=None)
    assert {m.basis for m in traces.matched} == {"aligned"}
    assert {tuple(m.wait_ns.tolist()) for m in traces.matched} == {(0, 70_000)}


def test_ends_that_scatter_as_much_as_they_differ_tell_nothing(tmp_path: Path) -> None:
    traces = job(tmp_path, [0, 30], jitter_us=150)
    assert [c.taken_out for c in traces.clocks] in ([False], [])


def test_a_correction_goes_along_ranks_that_share_no_group(tmp_path: Path) -> None:
    """Ranks 0 and 2 meet only over rank 1."""
    lines = [Timeline(rank=r, world=3) for r in range(3)]
    offsets = [0, 500, 900]
    for k in range(6):
        for name, members in (("a", (0, 1)), ("b", (1, 2))):
            at = 1000 * k + (0 if name == "a" else 400)
            for r in members:
                lines[r].device(at + offsets[r], 100, ALL_REDUCE, stream=COMM_STREAM,
                                **{**GROUP, "Process Group Name": name, "Group size": 2})  # fmt: skip
    for line in lines:
        line.write(tmp_path)
    traces = read(tmp_path)
    assert {c.rank: c.offset_ns for c in traces.clocks} == {1: 500_000, 2: 900_000}
    assert all((m.wait_ns == 0).all() for m in traces.matched)
