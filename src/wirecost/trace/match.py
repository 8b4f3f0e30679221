"""The same collective on every rank: matched by process group and sequence number, order or time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import UNKNOWN_GROUP, Int64

__all__ = ["SYNCHRONOUS", "Group", "Int64", "match_groups"]

# Operations that no rank can leave before the last has come. (A broadcast's root and a sender may.)
SYNCHRONOUS = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send_recv"))
_MAX_SHIFT = 1000
# A send's partner is another rank's receive, so it can't be matched by position among sends.
_POINT_TO_POINT = ("send", "recv")


class Group(msgspec.Struct):
    """Calls in one process group: for each trace (by its number) its rows, as many and in the same order."""

    name: str
    rows: dict[int, Int64]
    size: int  # of the process group

    def ops(self, traces: Sequence[RankTrace]) -> list[str]:
        """Returns the operation of each position."""
        first = next(iter(self.rows))
        return [op for op, _ in _ops(traces[first], self.rows[first])]


def match_groups(traces: Sequence[RankTrace], diagnostics: DiagnosticCounts) -> list[Group]:
    """Returns the matched collectives of every group that at least two ranks recorded.

    `traces` have known, distinct ranks. Messages whose ends the trace names are matched in `exchanges`.
    """
    by_group: dict[tuple[str, str], dict[int, Int64]] = defaultdict(dict)
    for number, trace in enumerate(traces):
        calls = trace.calls
        paired = np.isin(calls.op, [i for i, op in enumerate(calls.ops) if op in _POINT_TO_POINT])
        paired[[int(row) for row in calls.peers]] = True
        for group in np.unique(calls.group[~paired]):
            rows = np.flatnonzero((calls.group == group) & ~paired)
            by_group[calls.groups[group], calls.members[group]][number] = rows
    world = max([t.world_size or 0 for t in traces] + [len(traces)])
    groups: list[Group] = []
    for (group, members), rows in by_group.items():
        if len(rows) < 2:
            continue
        aligned_rows = _sequences(traces, rows)
        if aligned_rows is None:
            diagnostics.add("unmatched_collectives", max(len(r) for r in rows.values()), detail=f"group {group!r}")
            continue
        groups.append(Group(group, aligned_rows, max(_size(traces, rows), 0) or world))
        if not members and group == UNKNOWN_GROUP:
            diagnostics.add("matched_by_order", len(aligned_rows[next(iter(rows))]))
    return groups


def _size(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> int:
    return max(int(traces[n].calls.group_size[r].max(initial=-1)) for n, r in rows.items())


def _sequences(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> dict[int, Int64] | None:
    """Returns rows of equal length for every rank, matched position by position; None if they can't be matched."""
    numbers = {n: traces[n].calls.sequence[r] for n, r in rows.items()}
    if all(len(s) and (s >= 0).all() and len(np.unique(s)) == len(s) for s in numbers.values()):
        common = None
        for s in numbers.values():
            common = s if common is None else np.intersect1d(common, s)
        if common is not None and len(common):
            matched = {}
            for n, r in rows.items():
                order = np.argsort(numbers[n], kind="stable")
                matched[n] = r[order[np.searchsorted(numbers[n][order], common)]]
            if _same_ops(traces, matched):
                return matched
    if len({len(r) for r in rows.values()}) == 1 and _same_ops(traces, rows) and not _other_steps(traces, rows):
        return rows
    return _shifted(traces, rows)


def _other_steps(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> bool:
    """Returns whether the profilers recorded different steps.

    That is so if calls at the same position are always of different steps on different ranks, and never at the
    same time. The step alone isn't enough, because a kernel may run after its CPU step.
    """
    steps = [[traces[n].iterations[i].window.name if i >= 0 else None for i in traces[n].calls.iteration[r]]
             for n, r in rows.items()]  # fmt: skip
    if any(None in position or len(set(position)) == 1 for position in zip(*steps, strict=True)):
        return False
    starts = np.stack([traces[n].calls.start_ns[r] for n, r in rows.items()])
    ends = np.stack([traces[n].calls.end_ns[r] for n, r in rows.items()])
    absolute = all(traces[n].absolute_clock for n in rows)
    return not (absolute and (starts.max(axis=0) <= ends.min(axis=0)).any())


def _ops(trace: RankTrace, rows: Int64) -> list[tuple[str, int]]:
    calls = trace.calls
    return [(calls.ops[calls.op[r]], int(calls.bytes[r])) for r in rows]


def _same_ops(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> bool:
    """Returns whether all ranks recorded the same operations in the same order; sizes may differ."""
    names = [[op for op, _ in _ops(traces[n], r)] for n, r in rows.items()]
    return all(other == names[0] for other in names[1:])


def _shifted(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> dict[int, Int64] | None:
    """Matches the calls of profilers that started or stopped at different times.

    Each rank's calls are shifted against the shortest list to the one position where operations, sizes and times
    fit. Returns None if no position or several fit.
    """
    if not all(traces[n].absolute_clock for n in rows):
        return None
    base = min(rows, key=lambda n: len(rows[n]))
    wanted, length = _ops(traces[base], rows[base]), len(rows[base])
    if length == 0:
        return None
    starts, ends = traces[base].calls.start_ns[rows[base]], traces[base].calls.end_ns[rows[base]]
    matched = {}
    for n, r in rows.items():
        ops = _ops(traces[n], r)
        fits = []
        for shift in range(min(len(r) - length, _MAX_SHIFT) + 1):
            part = r[shift : shift + length]
            together = np.minimum(ends, traces[n].calls.end_ns[part]) >= np.maximum(
                starts, traces[n].calls.start_ns[part]
            )
            if ops[shift : shift + length] == wanted and together.all():
                fits.append(part)
        if len(fits) != 1:
            return None
        matched[n] = fits[0]
    return matched
