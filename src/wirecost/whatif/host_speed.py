"""How fast the host is without the profiler: fitted to the job's own step time where that tells, else a range.

The profiler slows the host by what it records of each call. One factor on all of the host's work stands for that.
It can be told from a step time only where the host's speed shows in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.whatif.measure import iteration_ns
from wirecost.whatif.scenario import Scenario
from wirecost.whatif.simulate import Speeds

FLOOR = 0.4
"""Smallest factor: jobs that waited for their host took 0.65 to 0.8 of their profiled time without the profiler, and
the host's own part of that is smaller (docs/how-to/whatif.md)."""
_SEEN = 0.01  # the host's speed shows where it changes the iteration by this share
_CLOSE = 0.002
_MOST_RESIDUAL = 0.1


@dataclass(frozen=True)
class HostSpeed:
    """The factor on the host's recorded work: an interval, a single value where `known`.

    `residual` is what then remains between the replayed and the stated step time, as a factor on all times.
    """

    low: float
    high: float
    known: bool
    residual: float = 1.0
    contradicts: bool = False


def fit_host(scenario: Scenario, step_time_ns: float | None) -> HostSpeed:
    """Returns the host's speed from the step time that the job measures without the profiler, if it is given."""
    recorded = iteration_ns(scenario, Speeds())
    if step_time_ns is None:
        return HostSpeed(FLOOR, 1.0, known=False)
    fastest = iteration_ns(scenario, Speeds(host=FLOOR))
    if step_time_ns >= recorded * (1 - _SEEN / 2):
        # The profiler did not slow the job.
        return _with_residual(1.0 if recorded - fastest > _SEEN * recorded else None, recorded, step_time_ns)
    if recorded - fastest <= _SEEN * recorded:
        return _with_residual(None, recorded, step_time_ns)
    if step_time_ns <= fastest:
        return _with_residual(FLOOR, fastest, step_time_ns)
    low, high = FLOOR, 1.0
    value, length = 1.0, recorded
    for _ in range(12):
        value = (low + high) / 2
        length = iteration_ns(scenario, Speeds(host=value))
        if abs(length - step_time_ns) <= _CLOSE * step_time_ns:
            break
        if length > step_time_ns:
            high = value
        else:
            low = value
    return _with_residual(value, length, step_time_ns)


def _with_residual(factor: float | None, length_ns: float, step_time_ns: float) -> HostSpeed:
    residual = step_time_ns / length_ns if length_ns else 1.0
    contradicts = abs(residual - 1) > _MOST_RESIDUAL
    if factor is None:
        return HostSpeed(FLOOR, 1.0, known=False, residual=residual, contradicts=contradicts)
    return HostSpeed(factor, factor, known=True, residual=residual, contradicts=contradicts)
