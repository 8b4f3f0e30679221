"""What a comparison of two breakdowns has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from wirecost.breakdown import Ratio, Source


@dataclass(frozen=True)
class PartChange:
    """One of the five parts: mean nanoseconds per iteration and rank, and its share of an iteration as
    `Breakdown.share` has it.

    None is unknown. A share is unknown but has bounds if it is an interval, as that of a command may be. Otherwise
    the bounds are the share itself.
    """

    part: str
    before_ns: float | None
    after_ns: float | None
    before_share: float | None
    after_share: float | None
    before_share_low: float | None = None
    before_share_high: float | None = None
    after_share_low: float | None = None
    after_share_high: float | None = None

    @property
    def change_ns(self) -> float | None:
        """Mean change of the time per iteration and rank in ns; None if a side is unknown."""
        return None if self.after_ns is None or self.before_ns is None else self.after_ns - self.before_ns


@dataclass(frozen=True)
class CollectiveChange:
    """One operation in one group: means over ranks; None if a side lacks the operation or the value."""

    op: str
    group: str
    before_count: float | None
    after_count: float | None
    before_ns: float | None
    after_ns: float | None
    before_bytes: float | None
    after_bytes: float | None


@dataclass(frozen=True)
class Comparison:
    """`speedup` is the ratio of the median iteration times, before over after: above 1 the second is faster."""

    before_source: Source
    after_source: Source
    before_title: str
    after_title: str
    before_iteration_ns: float | None
    after_iteration_ns: float | None
    speedup: Ratio | None
    parts: tuple[PartChange, ...]
    collectives: tuple[CollectiveChange, ...]
    summary: tuple[str, ...]
    sample: str = "iteration"
    """What the samples of `speedup` are: iterations of one run, or repeats."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as data for JSON."""
        return asdict(self) | {"before_source": self.before_source.value, "after_source": self.after_source.value}
