"""Network efficiency: what collectives really take on a cluster's network, fitted to measurements."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from wirecost.spec.base import Spec


class Segment(Spec):
    """From `from_bytes` on a collective of total size S takes `intercept_ns` + S / `bandwidth_Bps`.

    Hockney's model (R. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994) on one range
    of sizes. Only the first segment's intercept is a latency; a later one's is where its line would begin, and
    can be below 0.
    """

    from_bytes: NonNegativeInt
    intercept_ns: float
    bandwidth_Bps: PositiveFloat


class Interval(Spec):
    """A 90 % confidence interval."""

    low: float
    high: float


class CollectiveEfficiency(Spec):
    """One collective over one shape of group: `ranks` on `hosts`, `groups` such groups at once.

    `latency_ns` and `bus_bandwidth_Bps` sum it up: the first segment's intercept, and the bus bandwidth that the
    last segment tends to. `error` is the median relative error on sizes left out, one at a time.
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
            raise ValueError("segments begin at 0 bytes and each further one at a larger size")
        return self

    @property
    def key(self) -> tuple[str, int, int | None, int]:
        return self.collective, self.ranks, self.hosts, self.groups

    def time_ns(self, size_bytes: float) -> float:
        """One message's time; beyond the largest size measured the last line goes on."""
        at = max((s for s in self.segments if s.from_bytes <= size_bytes), key=lambda s: s.from_bytes)
        return at.intercept_ns + size_bytes / at.bandwidth_Bps * 1e9


class RankLatency(Spec):
    """Latency over the number of ranks n: `base_ns` + `step_ns` x (n - 1) on a ring, or x log2(n) on a tree
    (whichever of the two the measurements prefer)."""

    collective: str
    shape: str = Field(pattern="^(ring|tree)$")
    base_ns: float
    step_ns: NonNegativeFloat
    error: NonNegativeFloat
    rank_counts: tuple[PositiveInt, ...]

    def latency_ns(self, ranks: int) -> float:
        import math

        return self.base_ns + self.step_ns * (ranks - 1 if self.shape == "ring" else math.log2(ranks))


class NetworkEfficiency(Spec):
    """What was fitted for a cluster; `emulated` where the network was."""

    network: str | None = None
    emulated: bool | None = None
    collectives: tuple[CollectiveEfficiency, ...] = ()
    latency_over_ranks: tuple[RankLatency, ...] = ()

    def merged(self, newer: NetworkEfficiency) -> NetworkEfficiency:
        """This with the newer one's entries in place of those for the same collective and group shape."""
        kept = {c.key: c for c in self.collectives} | {c.key: c for c in newer.collectives}
        ranks = {r.collective: r for r in self.latency_over_ranks}
        ranks |= {r.collective: r for r in newer.latency_over_ranks}
        return NetworkEfficiency(
            network=newer.network or self.network,
            emulated=newer.emulated if newer.emulated is not None else self.emulated,
            collectives=tuple(
                sorted(kept.values(), key=lambda c: (c.collective, c.ranks, c.hosts or 0, c.groups))
            ),
            latency_over_ranks=tuple(ranks.values()),
        )
