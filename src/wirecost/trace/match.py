"""The same collective on every rank: matched by process group and sequence; then skew, wait and transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.trace.problems import Problems
from wirecost.trace.rank import RankTrace

Int64 = npt.NDArray[np.int64]

# Operations that no rank can leave before the last has come. (A broadcast's root and a sender may.)
_SYNCHRONOUS = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send_recv"))
# Clocks count as aligned where at least this share of a group's synchronous collectives overlap on all ranks.
_ALIGNED_SHARE = 0.9
_MAX_SHIFT = 1000
# A send's partner is another rank's receive, so position among its own kind tells nothing about it.
_POINT_TO_POINT = ("send", "recv")

ALIGNED, SHORTEST, PARTIAL = "aligned", "shortest", "partial"


class Matched(msgspec.Struct):
    """One collective over the ranks whose traces show it; arrays are in the order of `ranks`.

    `basis` says what wait and transfer rest on: `aligned` the starts on aligned clocks; `shortest` the shortest
    duration, an upper bound of the transfer; `partial` the starts of some of the group's ranks, again an upper
    bound of the transfer. `last_rank` came last (with the shortest duration, where clocks don't tell).
    """

    op: str
    group: str
    index: int
    ranks: tuple[int, ...]
    calls: Int64  # index into each rank's calls
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    bytes: int | None
    iteration: str | None
    basis: str
    last_rank: int
    first: bool  # the first of its rank after the profiler started: mostly start-up skew

    @property
    def duration_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    @property
    def transfer_ns(self) -> Int64:
        return self.duration_ns - self.wait_ns

    @property
    def start_skew_ns(self) -> int | None:
        return None if self.basis == SHORTEST else int(self.start_ns.max() - self.start_ns.min())

    @property
    def end_skew_ns(self) -> int | None:
        return None if self.basis == SHORTEST else int(self.end_ns.max() - self.end_ns.min())

    @property
    def cost_ns(self) -> int:
        """What the others waited for the last rank, summed over them."""
        return int(self.wait_ns.sum())

    @property
    def delay_ns(self) -> int:
        """How much later the last rank came than the one before it: what the collective gains without it."""
        if self.basis == SHORTEST:
            ordered = np.sort(self.duration_ns)
            return int(ordered[1] - ordered[0])
        ordered = np.sort(self.start_ns)
        return int(ordered[-1] - ordered[-2])


def match(traces: Sequence[RankTrace], problems: Problems) -> list[Matched]:
    """Every collective that at least two ranks show, in order of time. `traces` have known, distinct ranks."""
    by_group: dict[tuple[str, str], dict[int, Int64]] = defaultdict(dict)
    for number, trace in enumerate(traces):
        calls = trace.calls
        paired = np.isin(calls.op, [i for i, op in enumerate(calls.ops) if op in _POINT_TO_POINT])
        problems.add("point_to_point", int(paired.sum()) if len(traces) > 1 else 0)
        for group in np.unique(calls.group[~paired]):
            rows = np.flatnonzero((calls.group == group) & ~paired)
            by_group[calls.groups[group], calls.members[group]][number] = rows
    world = max([t.world_size or 0 for t in traces] + [len(traces)])
    found: list[Matched] = []
    for (group, members), rows in by_group.items():
        if len(rows) < 2:
            continue
        aligned_rows = _sequences(traces, rows)
        if aligned_rows is None:
            problems.add("unmatched_collectives", max(len(r) for r in rows.values()), detail=f"group {group!r}")
            continue
        size = max(_size(traces, rows), 0) or world
        found += _group(traces, group, aligned_rows, size, problems)
        if not members and group == "unknown":
            problems.add("matched_by_order", len(aligned_rows[next(iter(rows))]))
    found.sort(key=lambda m: (int(m.start_ns.min()), m.group, m.index))
    return found


def _size(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> int:
    return max(int(traces[n].calls.group_size[r].max(initial=-1)) for n, r in rows.items())


def _sequences(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> dict[int, Int64] | None:
    """Rows of the same length for every rank, matched position by position; None where they can't be."""
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
    """Whether the same position is of another step on every rank, always, and at another time: the profilers
    recorded different steps. (A kernel may run after its CPU step, so the step alone doesn't tell.)"""
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
    """Whether all ranks show the same operations in the same order; a gather's sizes may differ, its kind not."""
    names = [[op for op, _ in _ops(traces[n], r)] for n, r in rows.items()]
    return all(other == names[0] for other in names[1:])


def _shifted(traces: Sequence[RankTrace], rows: dict[int, Int64]) -> dict[int, Int64] | None:
    """Profilers that started or stopped at different times: shifts each rank's calls against the shortest list,
    to the one position where operations, sizes and times all fit. None where none or several fit."""
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


def _group(
    traces: Sequence[RankTrace], group: str, rows: dict[int, Int64], size: int, problems: Problems
) -> list[Matched]:
    numbers = list(rows)
    table = np.stack([rows[n] for n in numbers])
    starts = np.stack([traces[n].calls.start_ns[rows[n]] for n in numbers])
    ends = np.stack([traces[n].calls.end_ns[rows[n]] for n in numbers])
    reference = traces[numbers[0]]
    ops = [op for op, _ in _ops(reference, rows[numbers[0]])]
    together = starts.max(axis=0) <= ends.min(axis=0)
    synchronous = np.array([op in _SYNCHRONOUS for op in ops], dtype=bool)
    absolute = all(traces[n].absolute_clock for n in numbers)
    aligned = absolute and (not synchronous.any() or together[synchronous].mean() >= _ALIGNED_SHARE)
    found = []
    off = 0
    for column in range(table.shape[1]):
        start, end = starts[:, column], ends[:, column]
        duration = end - start
        fits = aligned and (together[column] or not synchronous[column])
        off += not fits
        if fits:
            wait = np.clip(start.max() - start, 0, duration)
            last = int(np.argmax(start))
            basis = ALIGNED if len(numbers) >= size else PARTIAL
        else:
            wait = duration - duration.min()
            last = int(np.argmin(duration))
            basis = SHORTEST
        sizes = {int(traces[n].calls.bytes[rows[n][column]]) for n in numbers}
        at = int(reference.calls.iteration[rows[numbers[0]][column]])
        found.append(
            Matched(
                op=ops[column],
                group=group,
                index=column,
                ranks=tuple(traces[n].rank or 0 for n in numbers),
                calls=table[:, column],
                start_ns=start,
                end_ns=end,
                wait_ns=wait,
                bytes=sizes.pop() if len(sizes) == 1 and -1 not in sizes else None,
                iteration=reference.iterations[at].window.name if at >= 0 else None,
                basis=basis,
                last_rank=traces[numbers[last]].rank or 0,
                first=bool((table[:, column] == 0).any()),
            )
        )
    if absolute:
        problems.add("clocks_not_aligned", off)
    return found
