"""Network efficiency: the times of collectives on a cluster's network, fitted to measurements."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from wirecost.spec.base import Spec


class Segment(Spec):
    """A range of sizes, which starts at `from_bytes`. In it a collective of S bytes takes intercept + S /
    bandwidth.

    This is Hockney's model (R. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994).
    Only the intercept of the first segment is a latency. That of a later segment is the extrapolation to 0
    bytes, and can be negative.

    Attributes:
        from_bytes: smallest total size of the segment in bytes.
        intercept_ns: time at 0 bytes in nanoseconds.
        bandwidth_Bps: slope of the segment as bytes per second.
    """

    from_bytes: NonNegativeInt
    intercept_ns: float
    bandwidth_Bps: PositiveFloat


class Interval(Spec):
    """A 90 % confidence interval.

    Attributes:
        low: lower end, in the unit of the value.
        high: upper end, in the unit of the value.
    """

    low: float
    high: float


class CollectiveEfficiency(Spec):
    """The times of one collective in groups of one shape.

    Attributes:
        collective: name of the collective, like `all_reduce`.
        ranks: number of ranks of a group.
        hosts: number of hosts of a group. None is unknown.
        groups: number of groups that communicate at the same time.
        smallest_bytes: smallest measured total size in bytes.
        largest_bytes: largest measured total size in bytes.
        segments: ranges of sizes, each with an intercept and a bandwidth.
        latency_ns: intercept of the first segment in nanoseconds.
        latency_interval_ns: 90 % interval of the latency in nanoseconds.
        bus_bandwidth_Bps: bus bandwidth in bytes per second to which the last segment converges for large sizes.
        bus_bandwidth_interval_Bps: 90 % interval of the bus bandwidth in bytes per second.
        error: median relative error of leave-one-out predictions over the sizes.
        points: number of measurements.
        source: what was measured.
    """

    collective: str
    ranks: PositiveInt
    hosts: PositiveInt | None = None
    groups: PositiveInt = 1
    smallest_bytes: PositiveInt
    largest_bytes: PositiveInt
    segments: tuple[Segment, ...] = Field(min_length=1)
    latency_ns: NonNegativeFloat
    latency_interval_ns: Interval
    bus_bandwidth_Bps: PositiveFloat
    bus_bandwidth_interval_Bps: Interval
    error: NonNegativeFloat
    points: PositiveInt
    source: str

    @model_validator(mode="after")
    def _ordered(self) -> CollectiveEfficiency:
        starts = [s.from_bytes for s in self.segments]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError("segments start at 0 bytes, and each further one at a larger size")
        return self

    @property
    def key(self) -> tuple[str, int, int | None, int]:
        """The collective and the shape of the group: (collective, ranks, hosts, groups)."""
        return self.collective, self.ranks, self.hosts, self.groups

    def time_ns(self, size_bytes: float) -> float:
        """Returns the time for S bytes in nanoseconds. Larger sizes than the measured ones are extrapolated."""
        segment = max((s for s in self.segments if s.from_bytes <= size_bytes), key=lambda s: s.from_bytes)
        return segment.intercept_ns + size_bytes / segment.bandwidth_Bps * 1e9


class RankLatency(Spec):
    """Latency as a function of the number of ranks n.

    It is `base_ns` + `step_ns` x (n - 1) on a ring, and `base_ns` + `step_ns` x log2(n) on a tree. `shape` is
    the one that fits the measurements better.

    Attributes:
        collective: name of the collective, like `all_reduce`.
        shape: `ring` or `tree`.
        base_ns: constant part of the latency in nanoseconds.
        step_ns: part for each step of the ring or level of the tree in nanoseconds.
        error: relative error of the fit.
        rank_counts: numbers of ranks that were measured.
    """

    collective: str
    shape: str = Field(pattern="^(ring|tree)$")
    base_ns: float
    step_ns: NonNegativeFloat
    error: NonNegativeFloat
    rank_counts: tuple[PositiveInt, ...]

    def latency_ns(self, ranks: int) -> float:
        """Returns the latency over `ranks` ranks in nanoseconds."""
        import math

        return self.base_ns + self.step_ns * (ranks - 1 if self.shape == "ring" else math.log2(ranks))


class NetworkEfficiency(Spec):
    """The fitted times of a cluster's network.

    Attributes:
        network: name of the network that was measured.
        emulated: whether the network was emulated. None is unknown.
        collectives: times of each collective in groups of each measured shape.
        latency_over_ranks: latency of each collective as a function of the number of ranks.
    """

    network: str | None = None
    emulated: bool | None = None
    collectives: tuple[CollectiveEfficiency, ...] = ()
    latency_over_ranks: tuple[RankLatency, ...] = ()

    def merged(self, newer: NetworkEfficiency) -> NetworkEfficiency:
        """Returns a copy in which newer entries replace those for the same collective and group shape."""
        collectives = {c.key: c for c in self.collectives} | {c.key: c for c in newer.collectives}
        ranks = {r.collective: r for r in self.latency_over_ranks}
        ranks |= {r.collective: r for r in newer.latency_over_ranks}
        return NetworkEfficiency(
            network=newer.network or self.network,
            emulated=newer.emulated if newer.emulated is not None else self.emulated,
            collectives=tuple(
                sorted(collectives.values(), key=lambda c: (c.collective, c.ranks, c.hosts or 0, c.groups))
            ),
            latency_over_ranks=tuple(ranks.values()),
        )
