"""The collectives and messages that join the ranks of a graph, with their transfer times."""

from __future__ import annotations

import numpy as np

from wirecost.trace.clocks import Clocks
from wirecost.whatif.nodes import Collective


def join_group(records, clocks: Clocks, number, group, joins, collectives) -> None:
    traces = [r.trace for r in records]
    ranks = list(group.rows)
    starts = np.stack([clocks.corrected(n, traces[n].calls.start_ns[group.rows[n]]) for n in ranks])
    ends = np.stack([clocks.corrected(n, traces[n].calls.end_ns[group.rows[n]]) for n in ranks])
    comparable = len({clocks.comparable[n] for n in ranks}) == 1
    transfer = ends.max(axis=0) - starts.max(axis=0)
    shortest = (ends - starts).min(axis=0)
    transfer = np.where(transfer > 0, np.minimum(transfer, shortest), shortest) if comparable else shortest
    ops = group.ops(traces)
    calls = traces[ranks[0]].calls
    size = max(group.size, len(ranks))
    for position in range(len(ops)):
        join = len(collectives)
        total = int(calls.bytes[group.rows[ranks[0]][position]])
        collectives.append(
            Collective(
                ops[position], group.name, size, total if total >= 0 else None, len(ranks),
                int(transfer[position]), len(ranks) == size, (number, position),
            )
        )  # fmt: skip
        for n in ranks:
            joins[n, int(group.rows[n][position])] = join


def join_exchange(records, clocks: Clocks, calls, joins, collectives) -> None:
    traces = [r.trace for r in records]
    start = [clocks.corrected(n, traces[n].calls.start_ns[row : row + 1])[0] for n, row in calls]
    end = [clocks.corrected(n, traces[n].calls.end_ns[row : row + 1])[0] for n, row in calls]
    shortest = min(e - s for s, e in zip(start, end, strict=True))
    first, row = calls[0]
    total = int(traces[first].calls.bytes[row])
    join = len(collectives)
    collectives.append(
        Collective(
            "send_recv", "messages", 2, total if total >= 0 else None, len(calls),
            int(min(max(max(end) - max(start), 0), shortest)), True, (-1, join),
        )
    )  # fmt: skip
    for n, call in calls:
        joins[n, int(call)] = join


def join_alone(records, joins, collectives) -> None:
    """Adds communication that no other rank shows: its time is transfer and waiting, which can't be told apart.
    The shortest of its size is an upper bound of the transfer."""
    for number, record in enumerate(records):
        calls = record.trace.calls
        length = calls.end_ns - calls.start_ns
        shortest: dict[tuple[int, int], int] = {}
        for row in range(len(calls)):
            key = (int(calls.op[row]), int(calls.bytes[row]))
            shortest[key] = min(shortest.get(key, int(length[row])), int(length[row]))
        for row in range(len(calls)):
            if (number, row) in joins:
                continue
            joins[number, row] = len(collectives)
            total, size = int(calls.bytes[row]), int(calls.group_size[row])
            waited = int(length[row]) - shortest[int(calls.op[row]), int(calls.bytes[row])]
            collectives.append(
                Collective(
                    calls.ops[calls.op[row]], calls.groups[calls.group[row]],
                    size if size > 0 else record.trace.world_size or 2, total if total >= 0 else None, 1,
                    int(length[row]), False, waited_ns=waited,
                )
            )  # fmt: skip
