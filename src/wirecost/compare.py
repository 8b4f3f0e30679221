"""Before and after: two breakdowns side by side, whatever they came from. Reads breakdowns only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from wirecost.breakdown import Breakdown, Collective, Ratio, Source, ratio_of_medians

PARTS = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")
WORDS = {
    "compute_only_ns": "compute only",
    "overlapped_ns": "overlapped",
    "exposed_comm_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
    "idle_ns": "idle",
}


@dataclass(frozen=True)
class PartChange:
    """One of the five parts: mean nanoseconds per iteration and rank, and its share of the window."""

    part: str
    before_ns: float
    after_ns: float
    before_share: float | None
    after_share: float | None

    @property
    def change_ns(self) -> float:
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class CollectiveChange:
    """One operation in one group: means over ranks; None where a side hasn't got it or doesn't know."""

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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"before_source": self.before_source.value, "after_source": self.after_source.value}


def compare(before: Breakdown, after: Breakdown) -> Comparison:
    """Compares two breakdowns; an iteration's time is its slowest rank's, parts are means over ranks."""
    times = before.iteration_times_ns(), after.iteration_times_ns()
    medians = before.iteration_ns(), after.iteration_ns()
    speedup = ratio_of_medians(*times)
    parts = tuple(_part(before, after, name) for name in PARTS)
    return Comparison(
        before_source=before.source,
        after_source=after.source,
        before_title=before.title,
        after_title=after.title,
        before_iteration_ns=medians[0].median if medians[0] else None,
        after_iteration_ns=medians[1].median if medians[1] else None,
        speedup=speedup,
        parts=parts,
        collectives=_collectives(before, after),
        summary=tuple(_summary(before, after, speedup, parts)),
    )


def _mean_ns(breakdown: Breakdown, part: str) -> float:
    found = [getattr(i.parts, part) for i in breakdown.iterations]
    return sum(found) / len(found) if found else 0.0


def _part(before: Breakdown, after: Breakdown, part: str) -> PartChange:
    windows = _mean_ns(before, "window_ns"), _mean_ns(after, "window_ns")
    means = _mean_ns(before, part), _mean_ns(after, part)
    shares = [m / w if w else None for m, w in zip(means, windows, strict=True)]
    return PartChange(part, *means, *shares)


def _by_operation(breakdown: Breakdown) -> dict[tuple[str, str], list[Collective]]:
    found: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for c in breakdown.collectives:
        found[c.op, c.group].append(c)
    return found


def _mean(rows: list[Collective] | None, field: str) -> float | None:
    values = [getattr(r, field) for r in rows or ()]
    return sum(values) / len(values) if values and None not in values else None


def _collectives(before: Breakdown, after: Breakdown) -> tuple[CollectiveChange, ...]:
    a, b = _by_operation(before), _by_operation(after)
    return tuple(
        CollectiveChange(
            *key,
            *(_mean(side.get(key), field) for field in ("count", "duration_ns", "bytes") for side in (a, b)),
        )
        for key in dict.fromkeys([*a, *b])
    )


def _summary(
    before: Breakdown, after: Breakdown, speedup: Ratio | None, parts: tuple[PartChange, ...]
) -> list[str]:
    lines = []
    if before.source is not after.source:
        lines.append(f"The first is {before.source.value}, the second {after.source.value}: read them apart.")
    if before.world_size != after.world_size:
        lines.append(f"The worlds differ: {before.world_size} and {after.world_size} ranks.")
    ranks = [len({i.rank for i in side.iterations}) for side in (before, after)]
    if ranks[0] != ranks[1]:
        lines.append(f"The first holds {ranks[0]} ranks, the second {ranks[1]}: a straggler may be in one alone.")
    counts = [len(side.by_iteration()) for side in (before, after)]
    if counts[0] != counts[1] and before.collectives and after.collectives:
        lines.append(
            f"Collectives are sums over {counts[0]} iteration{'s' * (counts[0] != 1)} in the first and "
            f"{counts[1]} in the second."
        )
    if speedup is None:
        return [*lines, "No iteration time on one of the sides: nothing to compare."]
    n = min(speedup.n_numerator, speedup.n_denominator)
    faster = speedup.value if speedup.value >= 1 else 1 / speedup.value
    which = "faster" if speedup.value >= 1 else "slower"
    interval = (
        f"95 % interval {speedup.low:.3f} to {speedup.high:.3f}, "
        f"n = {speedup.n_numerator} and {speedup.n_denominator}"
    )
    if n < 3:
        lines.append(f"The second is {faster:.2f}x {which}, on only {n} iteration{'s' * (n != 1)} of one side.")
    elif speedup.low <= 1 <= speedup.high:
        lines.append(f"No difference that these iterations show (ratio {speedup.value:.3f}, {interval}).")
    else:
        lines.append(f"The second is {faster:.2f}x {which} ({interval} for the ratio).")
    largest = max(parts, key=lambda p: abs(p.change_ns))
    if largest.change_ns:
        change = "grew" if largest.change_ns > 0 else "shrank"
        lines.append(
            f"What changed most is {WORDS[largest.part]}: it {change} by {abs(largest.change_ns) / 1e6:.3f} ms "
            f"per iteration and rank."
        )
    return lines


__all__ = ["CollectiveChange", "Comparison", "PartChange", "compare"]
