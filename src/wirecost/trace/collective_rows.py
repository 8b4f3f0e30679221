"""Collectives summed up by operation, process group and rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wirecost.trace.matched import Matched
from wirecost.trace.operations import bus_factor
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import Int64


class CollectiveRow(msgspec.Struct):
    """One operation in one process group on one rank, summed over its calls; None is unknown.

    `wait_ns` and `transfer_ns` are sums over the `matched` calls; `basis` is how they were determined (see
    `matched.Matched`). Bandwidth is the bytes over the transfer time if that is known for all calls, else over the
    duration, which gives a lower bound. `bandwidth_from` names which of the two was used.
    """

    rank: int | None
    op: str
    group: str
    group_size: int | None
    count: int
    bytes: int | None
    duration_ns: int
    exposed_ns: int
    matched: int
    wait_ns: int | None
    transfer_ns: int | None
    basis: str | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    bandwidth_from: str | None


def collective_rows(
    traces: Sequence[RankTrace], matched: Sequence[Matched], waits: Sequence[Int64]
) -> Iterator[CollectiveRow]:
    """Yields the row of each operation in each process group of each rank.

    Args:
        waits: for each trace the wait of each of its calls in ns; -1 is unknown.
    """
    basis: dict[tuple[int, str, str], set[str]] = {}
    for m in matched:
        for rank in m.ranks:
            basis.setdefault((rank, m.op, m.group), set()).add(m.basis)
    for trace, wait in zip(traces, waits, strict=True):
        calls = trace.calls
        for op, group in sorted({(int(o), int(g)) for o, g in zip(calls.op, calls.group, strict=True)}):
            mask = (calls.op == op) & (calls.group == group)
            grounds = basis.get((trace.rank or 0, calls.ops[op], calls.groups[group]), set())
            yield _row(trace, (op, group), mask, wait[mask], grounds)


def _row(trace: RankTrace, key: tuple[int, int], mask: Any, wait: Int64, grounds: set[str]) -> CollectiveRow:
    (op, group), calls = key, trace.calls
    duration = calls.end_ns[mask] - calls.start_ns[mask]
    sizes, members = calls.bytes[mask], calls.group_size[mask]
    known = wait >= 0
    total = int(sizes.sum()) if (sizes >= 0).all() else None
    size = int(members.max(initial=-1))
    waited = int(wait[known].sum()) if known.any() else None
    transfer = int((duration - wait)[known].sum()) if known.any() else None
    time = transfer if known.all() else int(duration.sum())
    factor = bus_factor(calls.ops[op], size if size > 0 else None)
    algbw = total / (time * 1e-9) if total is not None and time else None
    return CollectiveRow(
        rank=trace.rank,
        op=calls.ops[op],
        group=calls.groups[group],
        group_size=size if size > 0 else None,
        count=int(mask.sum()),
        bytes=total,
        duration_ns=int(duration.sum()),
        exposed_ns=int(calls.exposed_ns[mask].sum()),
        matched=int(known.sum()),
        wait_ns=waited,
        transfer_ns=transfer,
        basis="+".join(sorted(grounds)) if known.any() else None,
        algbw_Bps=algbw,
        busbw_Bps=algbw * factor if algbw is not None and factor is not None else None,
        bandwidth_from=None if algbw is None else "transfer" if known.all() else "duration",
    )
