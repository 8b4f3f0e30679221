"""What differs between ranks: who computes more, what stays exposed where."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from wirecost.trace.explained import Cause, Explained
from wirecost.trace.rank import RankTrace
from wirecost.trace.window import LAUNCHES

_ENOUGH = 3  # iterations, so that one can be left out


class Imbalance(msgspec.Struct):
    """Compute time over the ranks in one iteration; `excess` is the slowest over the mean, less 1."""

    iteration: str
    ranks: int
    mean_ns: float
    min_ns: int
    max_ns: int
    slowest_rank: int
    excess: float


class Exposed(msgspec.Struct):
    """A collective at one position in the iteration, over iterations and ranks. Times are means per iteration and
    rank.

    `position` is where in the iteration it starts, from 0 (beginning) to 1 (end). `after` and `before` are the
    compute kernels around it on the rank that exposes it most. `cause` is the code of the main cause of its
    exposure (see `causes.CAUSES`), and `causes` holds all of them. `cause_rank` is the rank that is late or waited
    for.
    """

    op: str
    group: str
    ordinal: int
    bytes: int | None
    exposed_ns: float
    duration_ns: float
    share: float | None
    position: float | None
    samples: int
    worst_rank: int
    after: str | None
    before: str | None
    cause: str
    cause_share: float
    cause_rank: int | None
    causes: list[Cause]


def complete(traces: Sequence[RankTrace]) -> list[list[int]]:
    """Returns the positions of each trace's complete iterations; of all iterations if the recording cuts every
    one.
    """
    every_cut = all(i.window.cut for t in traces for i in t.iterations)
    return [[n for n, i in enumerate(t.iterations) if every_cut or not i.window.cut] for t in traces]


def steady_iterations(traces: Sequence[RankTrace]) -> list[list[int]]:
    """Returns the positions of each trace's iterations that enter means: those that the recording doesn't cut.

    If windows come from launches, the last one ends with its own device work instead of the next step, so it lacks
    the host's time between the two. It is left out if there are three or more.
    """
    return [
        rows[:-1] if len(rows) >= _ENOUGH and t.iterations[rows[-1]].window.source == LAUNCHES else rows
        for t, rows in zip(traces, complete(traces), strict=True)
    ]


def imbalance(traces: Sequence[RankTrace]) -> list[Imbalance]:
    """Returns the imbalance of every iteration that at least two ranks recorded.

    Without iterations it compares the whole recorded windows.
    """
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for trace, complete_rows in zip(traces, complete(traces), strict=True):
        for iteration in (trace.iterations[n] for n in complete_rows):
            times[iteration.window.name].append((iteration.parts.compute_ns, trace.rank or 0))
        if not trace.iterations and trace.parts is not None:
            times["whole"].append((trace.parts.compute_ns, trace.rank or 0))
    imbalances = []
    for name, values in times.items():
        if len(values) < 2:
            continue
        mean = statistics.fmean(v for v, _ in values)
        longest, slowest = max(values)
        shortest, _ = min(values)
        excess = longest / mean - 1 if mean else 0.0
        imbalances.append(Imbalance(name, len(values), mean, shortest, longest, slowest, excess))
    return imbalances


def top_exposed(traces: Sequence[RankTrace], explained: Explained, count: int = 10) -> list[Exposed]:
    """Returns the collectives that cost most, by place in the iteration: the k-th call of its kind in its
    group."""
    slots: dict[tuple[str, str, int], list[tuple[RankTrace, int]]] = defaultdict(list)
    numbers = {id(t): n for n, t in enumerate(traces)}
    windows = 0
    for trace in traces:
        calls = trace.calls
        call_counts: dict[tuple[int, int, int], int] = defaultdict(int)
        windows += len(trace.iterations) or 1
        for row in range(len(calls)):
            at = int(calls.iteration[row])
            if trace.iterations and at < 0:
                continue
            key = (at, int(calls.op[row]), int(calls.group[row]))
            slots[calls.ops[key[1]], calls.groups[key[2]], call_counts[key]].append((trace, row))
            call_counts[key] += 1
    exposed_calls = []
    for (op, group, ordinal), rows in slots.items():
        exposed = sum(int(t.calls.exposed_ns[r]) for t, r in rows)
        if exposed == 0:
            continue
        worst, row = max(rows, key=lambda item: int(item[0].calls.exposed_ns[item[1]]))
        calls = worst.calls
        sizes = {int(t.calls.bytes[r]) for t, r in rows}
        places = [p for p in (_position(t, r) for t, r in rows) if p is not None]
        span = sum(_window_ns(t, r) for t, r in rows)
        causes = explained.causes((numbers[id(t)], r) for t, r in rows)
        exposed_calls.append(
            Exposed(
                op=op,
                group=group,
                ordinal=ordinal,
                bytes=sizes.pop() if len(sizes) == 1 and -1 not in sizes else None,
                exposed_ns=exposed / windows,
                duration_ns=sum(int(t.calls.end_ns[r] - t.calls.start_ns[r]) for t, r in rows) / windows,
                share=exposed / span if span else None,
                position=statistics.median(places) if places else None,
                samples=len(rows),
                worst_rank=worst.rank or 0,
                after=calls.kernels[calls.after[row]] if calls.after[row] >= 0 else None,
                before=calls.kernels[calls.before[row]] if calls.before[row] >= 0 else None,
                cause=causes[0].code,
                cause_share=causes[0].share,
                cause_rank=causes[0].rank,
                causes=causes,
            )
        )
    exposed_calls.sort(key=lambda e: (-e.exposed_ns, e.op, e.group, e.ordinal))
    return exposed_calls[:count]


def _window(trace: RankTrace, row: int) -> tuple[int, int]:
    at = int(trace.calls.iteration[row])
    if at >= 0:
        window = trace.iterations[at].window
        return window.start_ns, window.end_ns
    return trace.start_ns, trace.end_ns


def _window_ns(trace: RankTrace, row: int) -> int:
    start, end = _window(trace, row)
    return end - start


def _position(trace: RankTrace, row: int) -> float | None:
    start, end = _window(trace, row)
    return (int(trace.calls.start_ns[row]) - start) / (end - start) if end > start else None
