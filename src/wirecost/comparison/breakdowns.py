"""Compares two breakdowns of any source."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wirecost.breakdown import (
    Breakdown,
    Collective,
    Ratio,
    Share,
    Source,
    ratio_of_medians,
    ratio_over_repeats,
)
from wirecost.breakdown.shares import over_repeats
from wirecost.errors import WirecostError

WHOLE = "whole"
"""The name of a recorded window in which no iterations are known."""
# Windows that cover a smaller share of the time from the first to the last are parts of iterations.
_LEAST_COVERED_SHARE = 0.2

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
        return asdict(self) | {"before_source": self.before_source.value, "after_source": self.after_source.value}


def compare(before: Breakdown, after: Breakdown) -> Comparison:
    """Compares two breakdowns. An iteration's time is its slowest rank's. Times of parts are means over iterations
    and ranks, and shares are those of `Breakdown.share`.

    Recorded windows without iterations are compared only by their shares, because their length depends on the
    profiler.

    Raises:
        WirecostError: if the windows are only parts of iterations, which don't allow a comparison.
    """
    for side, name in ((before, "first"), (after, "second")):
        _refuse_partial_windows(side, name)
    undivided = [_is_whole(side) for side in (before, after)]
    times = [[] if w else side.iteration_times_ns() for side, w in zip((before, after), undivided, strict=True)]
    parts = [
        _part(part, [_mean_ns(side, part) for side in (before, after)], [s.share(part) for s in (before, after)])
        for part in PARTS
    ]
    return _compared(before, after, times, ratio_of_medians(*times), parts, undivided)


def compare_repeats(before: Sequence[Breakdown], after: Sequence[Breakdown]) -> Comparison:
    """Compares the repeats of an experiment with those of another one. A repeat counts once, with its median
    iteration time, and the interval of the speed-up is over repeats. Parts are means over all repeats.

    Raises:
        ValueError: if a side has no repeats.
    """
    times = [[statistics.median(t) for b in side if (t := b.iteration_times_ns())] for side in (before, after)]
    pooled = _pooled(before), _pooled(after)
    parts = [
        _part(
            part,
            [_mean_ns(side, part) for side in pooled],
            [over_repeats([b.share(part) for b in side]) for side in (before, after)],
        )
        for part in PARTS
    ]
    return _compared(pooled[0], pooled[1], times, ratio_over_repeats(*times), parts, [False, False], "repeat")


def _pooled(repeats: Sequence[Breakdown]) -> Breakdown:
    """Returns one breakdown with the iterations and collectives of all repeats."""
    if not repeats:
        raise ValueError("there are no repeats to compare")
    iterations = [
        i.model_copy(update={"name": f"{number} {i.name}"})
        for number, b in enumerate(repeats)
        for i in b.iterations
    ]
    collectives = [c for b in repeats for c in b.collectives]
    return repeats[0].model_copy(update={"iterations": tuple(iterations), "collectives": tuple(collectives)})


def _compared(
    before: Breakdown,
    after: Breakdown,
    times: Sequence[Sequence[float]],
    speedup: Ratio | None,
    parts: Sequence[PartChange],
    undivided: list[bool],
    sample: str = "iteration",
) -> Comparison:
    """Returns the comparison of two breakdowns with these iteration times in ns of each side."""
    medians = [statistics.median(t) if t else None for t in times]
    return Comparison(
        before_source=before.source,
        after_source=after.source,
        before_title=before.title,
        after_title=after.title,
        before_iteration_ns=medians[0],
        after_iteration_ns=medians[1],
        speedup=speedup,
        parts=tuple(parts),
        collectives=_collectives(before, after),
        summary=tuple(_summary(before, after, speedup, parts, undivided, sample)),
        sample=sample,
    )


def _is_whole(side: Breakdown) -> bool:
    """Returns whether a breakdown is of recorded windows without known iterations."""
    return (
        side.source is Source.IMPORTED and bool(side.iterations) and all(i.name == WHOLE for i in side.iterations)
    )


def _refuse_partial_windows(side: Breakdown, which: str) -> None:
    """Raises WirecostError where a rank's iterations cover next to nothing of the time from the first to the
    last."""
    by_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in side.iterations:
        if i.start_ns is not None:
            by_rank[i.rank].append((i.start_ns, i.start_ns + i.parts.window_ns))
    for rank, spans in by_rank.items():
        span = max(end for _, end in spans) - min(start for start, _ in spans)
        covered = sum(end - start for start, end in spans)
        if len(spans) > 1 and side.source is Source.IMPORTED and covered < _LEAST_COVERED_SHARE * span:
            raise WirecostError(
                f"the {which}: the windows of rank {rank} cover only {covered / span:.1%} of the time from the "
                "first to the last, so they are parts of iterations; leave --window out, or name annotations of "
                "complete iterations"
            )


def _mean_ns(breakdown: Breakdown, part: str) -> float | None:
    """Returns the mean time of a part per iteration and rank in ns. None if the parts are unknown."""
    if not all(i.parts.known for i in breakdown.iterations):
        return None
    values_ns = [getattr(i.parts, part) for i in breakdown.iterations]
    return sum(values_ns) / len(values_ns) if values_ns else 0.0


def _part(part: str, means_ns: Sequence[float | None], shares: Sequence[Share | None]) -> PartChange:
    """Returns the change of a part from the means in ns and the shares of both sides."""
    (before_ns, after_ns), (before, after) = means_ns, shares
    return PartChange(
        part,
        before_ns=before_ns,
        after_ns=after_ns,
        before_share=before.point if before else None,
        after_share=after.point if after else None,
        before_share_low=before.low if before else None,
        before_share_high=before.high if before else None,
        after_share_low=after.low if after else None,
        after_share_high=after.high if after else None,
    )


def _by_operation(breakdown: Breakdown) -> dict[tuple[str, str], list[Collective]]:
    by_operation: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for c in breakdown.collectives:
        by_operation[c.op, c.group].append(c)
    return by_operation


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
    before: Breakdown,
    after: Breakdown,
    speedup: Ratio | None,
    parts: Sequence[PartChange],
    undivided: list[bool],
    sample: str,
) -> list[str]:
    lines = []
    if before.source is not after.source:
        lines.append(f"The first is {before.source.value}, the second {after.source.value}: compare with care.")
    if before.world_size != after.world_size:
        lines.append(f"The worlds differ: {before.world_size} and {after.world_size} ranks.")
    ranks = [len({i.rank for i in side.iterations}) for side in (before, after)]
    if ranks[0] != ranks[1]:
        first = f"{ranks[0]} rank{'s' * (ranks[0] != 1)}"
        lines.append(f"The first holds {first}, the second {ranks[1]}: a straggler may be in one alone.")
    counts = [len(side.by_iteration()) for side in (before, after)]
    if counts[0] != counts[1] and before.collectives and after.collectives:
        lines.append(
            f"Collectives are sums over all that was recorded: {counts[0]} complete "
            f"iteration{'s' * (counts[0] != 1)} in the first and {counts[1]} in the second."
        )
    if any(undivided):
        which = "either side" if all(undivided) else "the first" if undivided[0] else "the second"
        return [
            *lines,
            f"No iterations are known in the recording of {which}: only shares of the time can be compared "
            "(--window name:REGEX names iterations).",
        ]
    if speedup is None:
        return [*lines, "One of the sides has no iteration time, so there is nothing to compare."]
    lines.append(speedup_sentence(speedup, sample))
    known = [(abs(p.change_ns), p.change_ns, p.part) for p in parts if p.change_ns is not None]
    size_ns, change_ns, part = max(known, key=lambda k: k[0], default=(0.0, 0.0, ""))
    if change_ns:
        change = "grew" if change_ns > 0 else "shrank"
        lines.append(
            f"What changed most is {WORDS[part]}: it {change} by {size_ns / 1e6:.3f} ms per iteration and rank."
        )
    if len(known) < len(parts):
        lines.append(
            "Iterations of a command are only timed: shares are from the window under the profiler, where there "
            "was one."
        )
    return lines


def speedup_sentence(speedup: Ratio, sample: str = "iteration") -> str:
    """Returns a sentence on how much faster or slower the second is, with the interval of the number.

    Args:
        sample: what the samples of the speed-up are: `iteration` or `repeat`.
    """
    faster = speedup.value >= 1
    value, low, high = (speedup.value, speedup.low, speedup.high) if faster else _inverse(speedup)
    which = "faster" if faster else "slower"
    samples = f"n = {speedup.n_numerator} and {speedup.n_denominator}"
    least = min(speedup.n_numerator, speedup.n_denominator)
    if least < 3 and sample == "iteration":
        return f"The second is {value:.2f}x {which}, on only {least} iteration{'s' * (least != 1)} of one side."
    samples += " repeats" * (sample == "repeat")
    if speedup.low <= 1 <= speedup.high:
        return (
            f"No difference that these {sample}s show: the second takes {1 / speedup.value:.3f} of the first's "
            f"time (95 % interval {1 / speedup.high:.3f} to {1 / speedup.low:.3f}, {samples})."
        )
    return f"The second is {value:.2f}x {which} (95 % interval {low:.2f}x to {high:.2f}x, {samples})."


def _inverse(ratio: Ratio) -> tuple[float, float, float]:
    return 1 / ratio.value, 1 / ratio.high, 1 / ratio.low


__all__ = ["CollectiveChange", "Comparison", "PartChange", "compare", "speedup_sentence"]
