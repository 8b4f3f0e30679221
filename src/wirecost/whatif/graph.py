"""Builds the dependency graph of a job from its ranks' traces (see `nodes`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirecost.trace.clocks import estimate_clocks
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.exchanges import match_messages
from wirecost.trace.match import match_groups
from wirecost.trace.recorded import Int64, Recorded
from wirecost.whatif.common_steps import common_steps
from wirecost.whatif.cpu_recording import positions
from wirecost.whatif.device_gaps import all_pauses, device_gaps
from wirecost.whatif.host_calls import QUEUE_COMMANDS, host_calls, outstanding
from wirecost.whatif.joins import join_alone, join_exchange, join_group
from wirecost.whatif.launched import Launched, launched
from wirecost.whatif.nodes import HOST, NONE, Collective, Graph, RankGraph
from wirecost.whatif.reading import RankRecord
from wirecost.whatif.steps import Steps
from wirecost.whatif.stream_waits import StreamWaits, stream_waits


def build(records: Sequence[RankRecord]) -> Graph:
    """Returns the graph of a job from its ranks' traces."""
    traces = [record.trace for record in records]
    diagnostics = DiagnosticCounts()
    groups = match_groups(traces, diagnostics) if len(traces) > 1 else []
    clocks = estimate_clocks(traces, groups)
    boundaries = [step_boundaries(record) for record in records]
    joins: dict[tuple[int, int], int] = {}
    collectives: list[Collective] = []
    for number, group in enumerate(groups):
        join_group(records, clocks, number, group, joins, collectives)
    for exchange in match_messages(traces, clocks, diagnostics) if len(traces) > 1 else []:
        join_exchange(records, clocks, exchange.calls, joins, collectives)
    unmatched = sum(len(t.calls) for t in traces) - len(joins)
    join_alone(records, joins, collectives)
    launches = [launched(r.recorded, b) for r, b in zip(records, boundaries, strict=True)]
    waits = _all_waits(records, launches)
    ranks = []
    for number, record in enumerate(records):
        calls = {int(record.call_rows[row]): join for (rank, row), join in joins.items() if rank == number}
        ranks.append(_rank(record, number, launches[number], waits[number], calls, boundaries[number]))
    common = common_steps(ranks, [c.members for c in collectives])
    open_end = any(f + common.count < len(rank.steps) for f, rank in zip(common.first, ranks, strict=True))
    begins = [
        int(clocks.corrected(n, b[f : f + 1] + r.trace.base_ns)[0])
        for n, (r, b, f) in enumerate(zip(records, boundaries, common.first, strict=True))
    ]
    ranks = [
        replace(rank, steps=rank.steps[f : f + common.count]) for f, rank in zip(common.first, ranks, strict=True)
    ]
    comparable = len(set(clocks.comparable)) == 1
    begins_ns = [float(b - min(begins)) if comparable else 0.0 for b in begins]
    lengths = _recorded(ranks, open_end=open_end)
    return Graph(
        ranks, collectives, clocks.offsets, lengths, unmatched, common.count, begins_ns, diagnostics, open_end
    )


def _all_waits(records: Sequence[RankRecord], launches: Sequence[Launched]) -> list[StreamWaits]:
    """Returns the waits between streams of each rank: those that are known, else inferred ones."""
    if all(record.waits is not None for record in records):
        tables = [positions(work.row, r.waits or []) for r, work in zip(records, launches, strict=True)]
        return [StreamWaits(table[:, 0], table[:, 1], len(table)) for table in tables]
    return stream_waits([(r.recorded, w) for r, w in zip(records, launches, strict=True)])


def step_boundaries(record: RankRecord) -> Int64:
    """Returns when the host began to launch each iteration of a rank, in ns of the file's clock."""
    recorded, trace = record.recorded, record.trace
    rows = np.flatnonzero(recorded.launch >= 0)
    start = recorded.device.start_ns[rows]
    begun = recorded.launch_ns[rows]
    found = []
    for iteration in trace.iterations:
        at = iteration.window.start_ns - trace.base_ns
        inside = rows[start == at]
        begins = recorded.launch_ns[inside] if len(inside) else begun[start >= at][:1]
        if len(begins):
            found.append(int(begins.min()))
    if not found:
        found = [int(begun.min())]
    return np.array(sorted(set(found)), dtype=np.int64)


def _rank(
    record: RankRecord, number: int, work: Launched, waits: StreamWaits, joins: dict[int, int], boundaries: Int64
) -> RankGraph:
    recorded = record.recorded
    host = host_calls(recorded)
    gap, delay, unexplained = device_gaps(recorded, work, waits, host)
    if record.waits is not None:
        gap = all_pauses(work, waits)
        unexplained = 0
    streams = {int(s): i for i, s in enumerate(np.unique(recorded.device.stream))}
    main = _main_stream(recorded, work)
    steps = Steps(recorded, work, host, waits, joins, streams, boundaries).build(gap, delay)
    for number_of_step, step in enumerate(steps):
        mine = np.flatnonzero((work.step == number_of_step) & (work.stream == main))
        rows = {int(work.row[p]) for p in mine[:1]}
        step.first = next((i for i, row in enumerate(step.row) if row in rows and step.kind[i] != HOST), NONE)
    return RankGraph(
        rank=number if record.trace.rank is None else record.trace.rank,
        steps=steps,
        streams=len(streams),
        waits=waits,
        unlaunched=int((recorded.launch < 0).sum()),
        unexplained_ns=unexplained,
        record=record,
        host=host,
        work=work,
        main=main,
        queue=max(QUEUE_COMMANDS, int(outstanding(recorded).max(initial=0)) + 1),
    )


def _main_stream(recorded: Recorded, work: Launched) -> int:
    """Returns the stream with most computing time."""
    length = np.where(recorded.device.comm[work.row], 0, work.end_ns - work.start_ns)
    return int(np.bincount(work.stream, weights=length).argmax()) if len(work.row) else 0


def _recorded(ranks: list[RankGraph], *, open_end: bool) -> list[float]:
    """Returns the recorded time from each step's first device work to the next one's, the last to the end of its
    work (if that was recorded, `open_end` is False); the mean over ranks, without the first step."""
    lengths = []
    for rank in ranks:
        starts = []
        for step in rank.steps:
            row = step.row[step.first] if step.first >= 0 else NONE
            starts.append(rank.record.recorded.device.start_ns[row] if row >= 0 else None)
        end = int(rank.work.end_ns.max()) if len(rank.work.row) else 0
        known = [int(s) for s in starts if s is not None]
        times = known if open_end and len(known) > 1 else [*known, end]
        lengths.append(np.diff(times)[1:] if len(times) > 2 else np.diff(times))
    count = min((len(part) for part in lengths), default=0)
    return np.mean([part[:count] for part in lengths], axis=0).tolist() if count else []
