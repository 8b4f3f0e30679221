"""Computes the bandwidth, micro-batch or accumulation at which communication falls below a share of
the iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.costmodel.setup import Setup
from wirecost.errors import SpecError
from wirecost.prediction.predict import Prediction, fraction_of, predict
from wirecost.prediction.ranges import Range, need_range, over_stacks
from wirecost.spec import with_bandwidth

LOWEST_BPS, HIGHEST_BPS = 1e6, 1e15
MAX_STEPS = 200
ROUGHLY = 1.02
"""Factor within which the ends of intervals are found."""


@dataclass(frozen=True)
class Need:
    """The smallest value of `what` with a comm fraction of at most `limit`; `value` is None if there is none.

    `floor` is the limit of the comm fraction for large values.
    """

    what: str
    limit: float
    value: float | None
    reached: float
    floor: float
    prediction: Prediction | None
    interval: Range | None = None
    """90 % interval of `value`; without an upper end where it may be that no value suffices."""
    over_stacks: dict[str, float | None] | None = None
    """`value` under each fitted stack with the same kind of attention, for a bandwidth."""


def fraction(setup: Setup) -> float:
    """Returns exposed communication over iteration time, without the rest of a prediction."""
    return fraction_of(setup)


def is_on_one_node(setup: Setup) -> bool:
    """Returns whether all GPUs of the job are in one node, so that it uses no network."""
    return setup.gpus <= setup.cluster.gpus_per_node


def bandwidth(setup: Setup, limit: float, within: float = 1.001) -> Need:
    """Returns the node's bandwidth in bits per second, by bisection up to a factor of `within`: comm fraction
    never grows with it.

    It is 0 for a job on one node, which uses no network, if communication inside the node is below the limit.
    """
    _check(limit)
    if is_on_one_node(setup):
        now = predict(setup)
        enough = now.comm_fraction <= limit
        value, prediction = (0.0, now) if enough else (None, None)
        return Need("bandwidth", limit, value, now.comm_fraction, now.comm_fraction, prediction)

    def at(bps: float) -> Setup:
        return replace(setup, cluster=with_bandwidth(setup.cluster, bps))

    floor = fraction(at(HIGHEST_BPS))
    if floor > limit:
        return Need("bandwidth", limit, None, floor, floor, None)
    low, high = LOWEST_BPS, HIGHEST_BPS
    if fraction(at(low)) <= limit:
        high = low
    for _ in range(MAX_STEPS):
        if high / low < within:
            break
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fraction(at(middle)) <= limit else (middle, high)
    best = at(high)
    return Need("bandwidth", limit, high, fraction(best), floor, predict(best))


def with_ranges(setup: Setup, answer: Need) -> Need:
    """Returns the answer with its interval, and for a bandwidth with the answers of other stacks."""
    if not answer.value:
        return answer  # nothing is needed, or nothing suffices
    solvers = {"accumulation": accumulation, "micro_batch": micro_batch}

    def needed(changed: Setup) -> float | None:
        if answer.what == "bandwidth":
            return bandwidth(changed, answer.limit, ROUGHLY).value
        return solvers[answer.what](changed, answer.limit).value

    stacks = over_stacks(setup, needed) if answer.what == "bandwidth" else None
    return replace(answer, interval=need_range(setup, answer.value, needed), over_stacks=stacks)


def accumulation(setup: Setup, limit: float, *, most: int = 4096) -> Need:
    """Returns the micro-batches for each iteration; the global batch grows with them."""
    return _count(setup, limit, "accumulation", most)


def micro_batch(setup: Setup, limit: float, *, most: int = 4096) -> Need:
    """Returns the micro-batch, whether or not it fits in memory (the prediction says); the global batch grows
    with it."""
    return _count(setup, limit, "micro_batch", most)


def _count(setup: Setup, limit: float, what: str, most: int) -> Need:
    _check(limit)

    def at(value: int) -> Setup:
        if what == "accumulation":
            return replace(setup, global_batch=setup.micro_batch * setup.data_parallel * value)
        return replace(setup, micro_batch=value, global_batch=value * setup.data_parallel * setup.accumulation)

    floor = fraction(at(most))
    if floor > limit:
        return Need(what, limit, None, floor, floor, None)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fraction(at(middle)) <= limit else (middle, high)
    best = at(high)
    return Need(what, limit, float(high), fraction(best), floor, predict(best))


def _check(limit: float) -> None:
    if not 0 < limit < 1:
        raise SpecError(f"comm fraction: {limit} is no share of an iteration; above 0 and below 1, like 0.2")
