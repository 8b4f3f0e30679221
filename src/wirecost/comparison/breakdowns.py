"""Compares two breakdowns of any source."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from wirecost.breakdown import Breakdown, Collective, Ratio, Share, Source, ratio_of_medians, ratio_over_repeats
from wirecost.breakdown.shares import over_repeats
from wirecost.comparison.result import CollectiveChange, Comparison, PartChange
from wirecost.comparison.summary import summary_lines
from wirecost.errors import WirecostError

WHOLE = "whole"
"""The name of a recorded window in which no iterations are known."""
# Windows that cover a smaller share of the time from the first to the last are parts of iterations.
_LEAST_COVERED_SHARE = 0.2

PARTS = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")


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
        summary=tuple(summary_lines(before, after, speedup, parts, undivided, sample)),
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
