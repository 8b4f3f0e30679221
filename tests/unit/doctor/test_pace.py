"""Whether a machine's cores run steadily, by loops that are given."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from wirecost.diagnostics import Severity, area_of
from wirecost.doctor import Machine
from wirecost.doctor.pace import MOST_CORES, loops_ms, probe


def test_steady_cores_are_fine() -> None:
    (finding,) = probe(Machine(), lambda _: [1.0, 1.02, 1.3, 1.05])
    assert (area_of(finding.code), finding.severity) == ("processor", Severity.OK)
    assert "1.00 ms at best" in finding.message
    assert finding.remedy is None


@pytest.mark.parametrize(("slow", "level"), [(1, Severity.OK), (2, Severity.INFO), (9, Severity.INFO)])
def test_cores_that_something_takes_part_of(slow: int, level: Severity) -> None:
    (finding,) = probe(Machine(), lambda _: [1.0] * (10 - slow) + [1.9] * slow)
    assert finding.severity is level
    assert (finding.remedy is None) == (level is Severity.OK)
    if level is Severity.INFO:
        assert f"{10 * slow}% of the time more than 1.4 times the best" in finding.message


def test_a_core_that_is_always_slow_is_held_against_the_others() -> None:
    slow = min(os.sched_getaffinity(0))
    (finding,) = probe(Machine(), lambda core: [2.0] * 5 if core == slow else [1.0] * 5)
    if len(os.sched_getaffinity(0)) == 1:
        assert finding.severity is Severity.OK
    else:
        assert finding.severity is Severity.INFO
        assert "2.00 at best on the slowest core: cores of unlike kinds" in finding.message


def refuse(_: int) -> list[float]:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("times", "why"), [(refuse, "Operation not permitted"), (lambda _: [0.0, 10.0], "clock here is too coarse")]
)
def test_what_cannot_be_told_is_unknown(times: Callable[[int], list[float]], why: str) -> None:
    (finding,) = probe(Machine(), times)
    assert finding.severity is Severity.INFO
    assert "is unknown" in finding.message
    assert why in finding.message


def test_at_most_a_few_cores_are_looked_at_and_the_process_may_run_where_it_could() -> None:
    before = os.sched_getaffinity(0)
    seen: list[int] = []

    def times(core: int) -> list[float]:
        os.sched_setaffinity(0, {core})
        seen.append(core)
        return [1.0]

    list(probe(Machine(), times))
    assert 1 <= len(seen) <= MOST_CORES
    assert len(set(seen)) == len(seen)
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ZeroDivisionError):
        list(probe(Machine(), lambda core: [times(core)[0] / 0]))
    assert os.sched_getaffinity(0) == before


def test_a_machine_that_is_not_this_one_has_no_cores_to_try() -> None:
    assert list(probe(Machine(live=False))) == []


def test_loops_are_timed() -> None:
    before = os.sched_getaffinity(0)
    try:
        found = loops_ms(min(before))
    finally:
        os.sched_setaffinity(0, before)
    assert len(found) > 1
    assert min(found) > 0
