"""Summaries hold the numbers that a breakdown's own methods give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from support.results import invented_store
from wirecost.breakdown import (
    Breakdown,
    Iteration,
    Parts,
    PeakMemory,
    Phase,
    Profile,
    Source,
    Spread,
)
from wirecost.breakdown.memory import MemoryKind
from wirecost.diagnostics import Diagnostic, Severity
from wirecost.study.summary import PARTS, Summary, summarise

SHARES = st.lists(st.integers(0, 10**12), min_size=5, max_size=5)


@st.composite
def iterations(draw: st.DrawFn) -> Iteration:
    shares = draw(SHARES)
    return Iteration(
        rank=draw(st.integers(0, 1)),
        name=draw(st.sampled_from("abc")),
        parts=Parts(window_ns=sum(shares), **dict(zip(PARTS, shares, strict=True))),
        phases=draw(st.dictionaries(st.sampled_from(Phase), st.integers(0, 10**12), max_size=5)),
        loss=draw(st.none() | st.floats(-10, 10)),
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(iterations(), max_size=12), st.none() | st.integers(1, 10**9), st.sets(st.integers(0, 1)))
def test_each_number_is_the_breakdowns_own(found: list[Iteration], tokens: int | None, ranks: set[int]) -> None:
    breakdown = Breakdown(
        source=Source.MEASURED,
        title="t",
        world_size=2,
        iterations=tuple(found),
        tokens_per_iteration=tokens,
        peak_memory=tuple(
            PeakMemory(rank=r, kind=MemoryKind.RESIDENT_SET, since="process_start", peak_bytes=10 + r)
            for r in ranks
        ),
        profile=Profile(asked_iterations=2, iterations=tuple(found[:2])),
        diagnostics=(Diagnostic("a", Severity.WARNING, "b"),),
    )
    summary = summarise(breakdown.model_dump_json().encode())
    assert list(summary.iteration_times_ns) == breakdown.iteration_times_ns()
    assert summary.iteration_ns == breakdown.iteration_ns()
    assert summary.comm_fraction == breakdown.comm_fraction()
    assert summary.part_shares == {part: breakdown.part_share(part) for part in PARTS}
    for phase in Phase:
        assert summary.phases_ns.get(phase) == breakdown.phase_ns(phase)
    assert summary.tokens_per_s == breakdown.tokens_per_s()
    assert summary.peak == breakdown.largest_peak()
    assert summary.diagnostics == breakdown.diagnostics
    assert breakdown.profile is not None
    assert summary.profile is not None
    assert summary.shares == {part: breakdown.share(part) for part in PARTS}
    hidden, exposed = (breakdown.profile.part_share(part) for part in ("overlapped_ns", "exposed_comm_ns"))
    assert summary.profile.overlapped == (hidden.median if hidden else None)
    assert summary.profile.exposed_comm == (exposed.median if exposed else None)
    assert (summary.profile.overlap, summary.profile.reason) == (breakdown.profile.overlap(), None)


def changed(root: Path, **collective: object) -> Summary:
    """The summary of a result whose collectives all have other fields."""
    result = invented_store(root).results()[0]
    data = json.loads((result.directory / "breakdown.json").read_text())
    assert data["collectives"]
    for one in data["collectives"]:
        one.update(collective)
    return summarise(json.dumps(data).encode())


def test_bytes_and_transfer_come_from_the_collectives(tmp_path: Path) -> None:
    summary = changed(tmp_path)
    assert summary.sent_bytes == 1e6  # 2 (n-1)/n of 1 MB with 2 ranks
    assert summary.transfer is not None
    assert (summary.transfer.bytes_per_call, summary.transfer.calls) == (1e6, 4)
    assert summary.transfer.measured_ns == pytest.approx(summary.transfer.expected_ns)
    assert summary.losses == pytest.approx((5, 4.9, 4.8, 4.7))


@pytest.mark.parametrize("field", ["bytes", "group_size"])
def test_bytes_that_are_not_known_are_unknown(tmp_path: Path, field: str) -> None:
    assert changed(tmp_path, **{field: None}).sent_bytes is None


def test_an_operation_that_nobody_knows_leaves_the_bytes_unknown(tmp_path: Path) -> None:
    assert changed(tmp_path, op="shuffle").sent_bytes is None


def test_nothing_is_expected_in_no_time(tmp_path: Path) -> None:
    assert changed(tmp_path, expected_ns=0).transfer is None


def test_a_study_is_read_one_result_at_a_time(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    by_name = {r.directory.name: r for r in store.summaries().results}
    results = store.results()
    assert len(by_name) == len(results) == 16
    for result in results:
        summary = by_name[result.directory.name].summary
        assert result.breakdown is not None
        assert summary is not None
        assert summary.iteration_ns == Spread.of(result.breakdown.iteration_times_ns())
        assert by_name[result.directory.name].experiment == result.experiment
        assert by_name[result.directory.name].outcome == result.outcome


def test_a_damaged_result_is_one_line_that_names_it(tmp_path: Path) -> None:
    store = invented_store(tmp_path)
    path = store.results()[3].directory / "breakdown.json"
    path.write_text(path.read_text()[:-20])
    contents = store.summaries()
    (damaged,) = contents.damaged
    assert damaged.directory == path.parent
    assert damaged.reason.startswith("breakdown.json has ")
    assert "\n" not in damaged.reason
    assert len(contents.results) == 15
    with pytest.raises(ValidationError):
        summarise(b"[]")
