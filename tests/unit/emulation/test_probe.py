"""Which of several measurements of a link counts, and how long a busy machine is given."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from wirecost.emulation import probe
from wirecost.emulation.probe import RETRY_PAUSES_S, LinkMeasurement, measure_best, too_slow

GIGABIT = 1e9
AT_ONCE = RETRY_PAUSES_S.count(0.0)


def measured(fractions: list[float], monkeypatch: pytest.MonkeyPatch) -> tuple[LinkMeasurement, int, float]:
    """The best of what a machine reaches, how often it was measured, and the seconds of pauses."""
    links = iter(fractions)
    count, slept = 0, []

    def measure(_: object) -> LinkMeasurement:
        nonlocal count
        count += 1
        rate = next(links) * GIGABIT
        return LinkMeasurement(
            nominal_rate_bps=GIGABIT, rates_bps=(GIGABIT, rate), round_trip_ns=40_000, unshaped_bytes=250_000
        )

    monkeypatch.setattr(probe, "measure_links", measure)
    monkeypatch.setattr(time, "sleep", slept.append)
    return measure_best(cast(Any, None)), count, sum(slept)


def test_a_link_that_gives_its_rate_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link, count, slept = measured([0.99], monkeypatch)
    assert (too_slow(link), count, slept) == (None, 1, 0)


def test_a_machine_that_was_busy_for_some_seconds_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    link, count, slept = measured([0.7, 0.85, 0.92, 0.9, 0.91, 0.9, 0.93, 0.98], monkeypatch)
    assert (too_slow(link), count, slept) == (None, 8, 1 + 2 + 4)


def test_one_that_stays_busy_is_told_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    link, count, slept = measured([0.9, 0.93, *[0.91] * 7], monkeypatch)
    assert count == 1 + len(RETRY_PAUSES_S)
    assert slept == sum(RETRY_PAUSES_S)
    assert (too_slow(link) or "").startswith("this machine reaches 930 Mb/s between 2 emulated hosts, not 1 Gb/s")


def test_one_that_is_far_too_slow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    link, count, slept = measured([0.5] * 20, monkeypatch)
    assert too_slow(link)
    assert (count, slept) == (1 + AT_ONCE, 0)
