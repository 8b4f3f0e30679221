"""How fast the host is without the profiler: fitted to the job's own step time where that tells, else a range.

The profiler slows the host by what it records of each call. One factor on all of the host's work stands for that.
It can be told from a step time only where the host's speed shows in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.whatif.measure import NETWORK_BOUND, bound_by, iteration_ns
from wirecost.whatif.scenario import Scenario
from wirecost.whatif.simulate import Speeds

FLOOR = 0.3
"""Smallest factor that is fitted."""
RANGE = (0.47, 0.88)
"""The factor where it can't be fitted: what jobs on two hosts' machines took without the profiler, 0.49 to 0.8
of the recorded host time (docs/how-to/whatif.md)."""
_SEEN = 0.01  # the host's speed shows where it changes the iteration by this share
_CLOSE = 0.002
_HALVINGS = 9
_MOST_RESIDUAL = 0.1


@dataclass(frozen=True)
class HostSpeed:
    """The factor on the host's recorded work: an interval, a single value where `known`.

    `device` and `network` are factors that make the replay meet the stated step time where the host can't: on the
    part that bounds the iteration. `network` holds for the recorded network alone.
    """

    low: float
    high: float
    known: bool
    device: float = 1.0
    network: float = 1.0
    contradicts: bool = False

    def speeds(self, host: float, *, same_network: bool) -> Speeds:
        """Returns the factors of a replay with this host factor."""
        return Speeds(host=host, device=self.device, network=self.network if same_network else 1.0)


def fit_processors(scenario: Scenario, step_time_ns: float | None) -> HostSpeed:
    """Returns the speed of a job on processors: the profiler slows computing and gloo by the same factor."""
    if step_time_ns is None:
        return HostSpeed(1.0, 1.0, known=True)
    recorded = iteration_ns(scenario, Speeds())
    factor = step_time_ns / recorded if recorded else 1.0
    return HostSpeed(1.0, 1.0, known=True, device=factor, network=factor)


def fit_host(scenario: Scenario, step_time_ns: float | None) -> HostSpeed:
    """Returns the host's speed from the step time that the job measures without the profiler, if it is given."""
    if step_time_ns is None:
        return HostSpeed(*RANGE, known=False)
    recorded = iteration_ns(scenario, Speeds())
    fastest = iteration_ns(scenario, Speeds(host=FLOOR))
    shows = recorded - fastest > _SEEN * recorded
    if not shows:
        return _with_rest(scenario, None, step_time_ns)
    if step_time_ns >= recorded * (1 - _SEEN / 2):
        return _with_rest(scenario, 1.0, step_time_ns)
    wanted = max(step_time_ns, fastest * (1 + _SEEN))
    low, high = FLOOR, 1.0
    value = 1.0
    for _ in range(_HALVINGS):
        value = (low + high) / 2
        length = iteration_ns(scenario, Speeds(host=value))
        if abs(length - wanted) <= _CLOSE * wanted:
            break
        if length > wanted:
            high = value
        else:
            low = value
    if wanted > step_time_ns:
        # The device bounds the job: the host is as fast as this or faster.
        return _with_rest(scenario, None, step_time_ns, value)
    return _with_rest(scenario, value, step_time_ns)


def _with_rest(
    scenario: Scenario, factor: float | None, step_time_ns: float, at: float | None = None
) -> HostSpeed:
    """Returns the host's speed with the factor on what bounds the iteration that makes up for the rest."""
    host = factor or at or (RANGE[0] + RANGE[1]) / 2
    length = iteration_ns(scenario, Speeds(host=host))
    rest = step_time_ns / length if length else 1.0
    contradicts = abs(rest - 1) > _MOST_RESIDUAL
    limits = (
        (factor, factor)
        if factor is not None
        else (RANGE[0], min(RANGE[1], 1.0))
        if at is None
        else (min(RANGE[0], at), at)
    )
    found = HostSpeed(*limits, known=factor is not None, contradicts=contradicts)
    if abs(rest - 1) <= _CLOSE:
        return found
    bound = bound_by(scenario, Speeds(host=host))
    low, high = 0.6, 1.6
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        speeds = Speeds(host=host, network=middle) if bound == NETWORK_BOUND else Speeds(host=host, device=middle)
        if iteration_ns(scenario, speeds) > step_time_ns:
            high = middle
        else:
            low = middle
    value = (low + high) / 2
    return replace(found, network=value) if bound == NETWORK_BOUND else replace(found, device=value)
