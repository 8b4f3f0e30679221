"""Wait and transfer of matched collectives and messages, on clocks whose offsets are taken out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.clocks import ClockOffset, Clocks, estimate_clocks
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.exchanges import Exchange, match_messages
from wirecost.trace.match import SYNCHRONOUS, Group, match_groups
from wirecost.trace.matched import ALIGNED, PARTIAL, SHORTEST, Matched
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import NONE, Int64

# Clocks count as aligned where at least this share of a group's synchronous collectives overlap on all ranks.
_ALIGNED_SHARE = 0.9
# Names of the process groups of pipelines (Megatron-LM's PIPELINE_MODEL_PARALLEL_GROUP, device meshes' `mesh_pp`).
_PIPELINE = re.compile(r"pipeline|(^|[^a-z])pp([^a-z]|$)", re.IGNORECASE)


class Waits(msgspec.Struct):
    """The result of comparing all ranks' traces: matched collectives and messages in order of time, and clock
    offsets.
    """

    matched: list[Matched]
    clocks: list[ClockOffset]


def find_waits(traces: Sequence[RankTrace], diagnostics: DiagnosticCounts) -> Waits:
    """Matches collectives and messages over the ranks, and splits their time into wait and transfer."""
    groups = match_groups(traces, diagnostics)
    clocks = estimate_clocks(traces, groups)
    taken_out = [c for c in clocks.offsets if c.taken_out]
    diagnostics.add(
        "clock_offsets",
        len(taken_out),
        detail="; ".join(
            f"rank {c.rank} {c.offset_ns / 1e3:+.1f} us from rank {c.reference_rank}, "
            f"by {c.collectives} collectives"
            for c in sorted(taken_out, key=lambda c: -abs(c.offset_ns))[:3]
        ),
    )
    matched: list[Matched] = []
    for group in groups:
        matched += _collectives(traces, group, clocks, diagnostics)
    for exchange in match_messages(traces, clocks, diagnostics):
        match = _exchange(traces, exchange, clocks)
        if match is not None:
            matched.append(match)
        else:
            diagnostics.add("point_to_point", len(exchange.calls))
    matched.sort(key=lambda m: (int(m.start_ns.min()), m.group, m.index))
    return Waits(matched, clocks.offsets)


def _collectives(
    traces: Sequence[RankTrace], group: Group, clocks: Clocks, diagnostics: DiagnosticCounts
) -> list[Matched]:
    numbers = list(group.rows)
    table = np.stack([group.rows[n] for n in numbers])
    starts = np.stack([clocks.corrected(n, traces[n].calls.start_ns[group.rows[n]]) for n in numbers])
    ends = np.stack([clocks.corrected(n, traces[n].calls.end_ns[group.rows[n]]) for n in numbers])
    reference = traces[numbers[0]]
    ops = group.ops(traces)
    together = starts.max(axis=0) <= ends.min(axis=0)
    synchronous = np.array([op in SYNCHRONOUS for op in ops], dtype=bool)
    comparable = len({clocks.comparable[n] for n in numbers}) == 1
    aligned = comparable and (not synchronous.any() or together[synchronous].mean() >= _ALIGNED_SHARE)
    ranks = tuple(traces[n].rank or 0 for n in numbers)
    uncertainty = max(clocks.scatter_ns[n] for n in numbers)
    matched = []
    off = 0
    for column in range(table.shape[1]):
        start, end = starts[:, column], ends[:, column]
        if ops[column] == "send_recv" and len(numbers) > 2:
            if not (aligned and together[column]):
                diagnostics.add("point_to_point", len(numbers))
                continue
            wait, culprit = _unknown_neighbours(start, end)
            basis = SHORTEST
        elif aligned and (together[column] or not synchronous[column]):
            wait, culprit = _until_the_last(start, end)
            basis = ALIGNED if len(numbers) >= group.size else PARTIAL
        else:
            off += 1
            wait, culprit = _over_the_shortest(end - start)
            basis = SHORTEST
        sizes = {int(traces[n].calls.bytes[group.rows[n][column]]) for n in numbers}
        by_start = basis != SHORTEST or ops[column] == "send_recv"
        last = int(np.argmax(start)) if by_start else int(np.argmin(end - start))
        matched.append(
            Matched(
                op=ops[column],
                group=group.name,
                index=column,
                ranks=ranks,
                calls=table[:, column],
                start_ns=start,
                end_ns=end,
                wait_ns=wait,
                waits_for=_ranks_at(ranks, culprit),
                bytes=sizes.pop() if len(sizes) == 1 and NONE not in sizes else None,
                iteration=_iteration(reference, int(group.rows[numbers[0]][column])),
                basis=basis,
                last_rank=ranks[last],
                first=bool((table[:, column] == 0).any()),
                uncertainty_ns=uncertainty,
            )
        )
    if comparable:
        diagnostics.add("clocks_not_aligned", off)
    return matched


def _until_the_last(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Returns each rank waits for the last one to start."""
    last = int(np.argmax(start))
    wait = np.clip(start[last] - start, 0, end - start)
    return wait, np.where(wait > 0, last, NONE)


def _over_the_shortest(duration: Int64) -> tuple[Int64, Int64]:
    """Returns the shortest duration is taken as the transfer, and its rank as the last to come."""
    last = int(np.argmin(duration))
    wait = duration - duration[last]
    return wait, np.where(wait > 0, last, NONE)


def _unknown_neighbours(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Returns (wait, late rank) for sends and receives between ranks whose partners are unknown.

    The shortest duration bounds the transfer. A rank that took longer is assumed to have waited for the rank whose
    start plus the transfer is closest to its own end.
    """
    transfer = int((end - start).min())
    wait = end - start - transfer
    culprit = np.full(len(start), NONE, dtype=np.int64)
    for row in np.flatnonzero(wait > 0):
        distance = np.abs(start + transfer - end[row])
        distance[row] = np.iinfo(np.int64).max
        culprit[row] = int(np.argmin(distance))
    return wait, culprit


def _exchange(traces: Sequence[RankTrace], exchange: Exchange, clocks: Clocks) -> Matched | None:
    """Returns an exchange of messages; None where the clocks of its ranks can't be compared."""
    numbers = [n for n, _ in exchange.calls]
    if len({clocks.comparable[n] for n in numbers}) > 1:
        return None
    rows = np.array([row for _, row in exchange.calls], dtype=np.int64)
    start, end = (
        np.array(
            [int(clocks.corrected(n, times(traces[n])[[row]])[0]) for n, row in exchange.calls], dtype=np.int64
        )
        for times in (lambda t: t.calls.start_ns, lambda t: t.calls.end_ns)
    )
    wait, culprit = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), NONE, dtype=np.int64)
    for sender, receiver in exchange.messages:
        for own, other in ((sender, receiver), (receiver, sender)):
            # A short message is sent ahead into a buffer: its sender doesn't wait for the receiver.
            ahead = own == sender and end[sender] <= start[receiver]
            late = 0 if ahead else int(min(start[other] - start[own], end[own] - start[own]))
            if late > wait[own]:
                wait[own], culprit[own] = late, other
    calls = [traces[n].calls for n in numbers]
    names = {c.ops[c.op[row]] for c, row in zip(calls, rows, strict=True)}
    ranks = tuple(traces[n].rank or 0 for n in numbers)
    group = calls[0].groups[calls[0].group[rows[0]]]
    sizes = {int(c.bytes[row]) for c, row in zip(calls, rows, strict=True)}
    return Matched(
        op=names.pop() if len(names) == 1 else "send_recv",
        group=group,
        index=int(rows[0]),
        ranks=ranks,
        calls=rows,
        start_ns=start,
        end_ns=end,
        wait_ns=wait,
        waits_for=_ranks_at(ranks, culprit),
        bytes=sizes.pop() if len(sizes) == 1 and NONE not in sizes else None,
        iteration=_iteration(traces[numbers[0]], int(rows[0])),
        basis=ALIGNED,
        last_rank=ranks[int(np.argmax(start))],
        first=bool((rows == 0).any()),
        bubble=_is_bubble(traces, exchange, group),
        uncertainty_ns=max(clocks.scatter_ns[n] for n in numbers),
    )


def _is_bubble(traces: Sequence[RankTrace], exchange: Exchange, group: str) -> bool:
    """Returns whether a wait in an exchange is a pipeline stage's for its neighbour: by the name of the process
    group, or since no ring of ranks closes, each of which sends to one and receives from another."""
    if _PIPELINE.search(group):
        return True
    ranks = {traces[n].rank for n, _ in exchange.calls}
    ring = len(ranks) > 2 and len(ranks) == len(exchange.calls) == len(exchange.messages)
    both_ways = len(ranks) == 2 and len(exchange.messages) == 2 == len(exchange.calls)
    return not ring and not both_ways


def _ranks_at(ranks: tuple[int, ...], positions: Int64) -> Int64:
    table = np.array([*ranks, NONE], dtype=np.int64)
    return table[positions]


def _iteration(trace: RankTrace, row: int) -> str | None:
    at = int(trace.calls.iteration[row])
    return trace.iterations[at].window.name if at >= 0 else None
