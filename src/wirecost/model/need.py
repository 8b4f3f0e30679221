"""`need`: the bandwidth, micro-batch or accumulation at which communication falls below a share of the
iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.errors import SpecError
from wirecost.model.load import with_bandwidth
from wirecost.model.predict import Prediction, predict
from wirecost.model.setup import Setup

LOWEST_BPS, HIGHEST_BPS = 1e6, 1e15
MAX_STEPS = 200


@dataclass(frozen=True)
class Need:
    """The smallest value of `what` with a comm fraction of at most `limit`; `value` is None where none has it.

    `floor` is the comm fraction that stays however large the value gets.
    """

    what: str
    limit: float
    value: float | None
    reached: float
    floor: float
    prediction: Prediction | None


def fraction(made: Setup) -> float:
    """Exposed communication over iteration time."""
    times = predict(made).times
    return float(times.exposed_comm_s / times.total_s)


def bandwidth(made: Setup, limit: float) -> Need:
    """The node's bandwidth in bits per second, by bisection: comm fraction never grows with it."""
    _check(limit)

    def at(bps: float) -> Setup:
        return replace(made, cluster=with_bandwidth(made.cluster, bps))

    floor = fraction(at(HIGHEST_BPS))
    if floor > limit:
        return Need("bandwidth", limit, None, floor, floor, None)
    low, high = LOWEST_BPS, HIGHEST_BPS
    if fraction(at(low)) <= limit:
        high = low
    for _ in range(MAX_STEPS):
        if high / low < 1.001:
            break
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fraction(at(middle)) <= limit else (middle, high)
    best = at(high)
    return Need("bandwidth", limit, high, fraction(best), floor, predict(best))


def accumulation(made: Setup, limit: float, *, most: int = 4096) -> Need:
    """Micro-batches for each iteration: the global batch grows with them."""
    return _count(made, limit, "accumulation", most)


def micro_batch(made: Setup, limit: float, *, most: int = 4096) -> Need:
    """The micro-batch, whether or not it fits in memory (the prediction says): the global batch grows with it."""
    return _count(made, limit, "micro_batch", most)


def _count(made: Setup, limit: float, what: str, most: int) -> Need:
    _check(limit)

    def at(value: int) -> Setup:
        if what == "accumulation":
            return replace(made, global_batch=made.micro_batch * made.data_parallel * value)
        return replace(made, micro_batch=value, global_batch=value * made.data_parallel * made.accumulation)

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
