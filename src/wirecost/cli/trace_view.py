"""The tables that `wirecost trace` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirecost.breakdown import Parts
from wirecost.text import printable

if TYPE_CHECKING:
    from wirecost.trace import TraceSet
    from wirecost.trace.result import CollectiveRow

_MANY_RANKS = 16
_MANY_ROWS = 24
_NAME_WIDTH = 14  # a name keeps this much of itself: ProfilerStep#3, reduce_scatter


def _ms(ns: float | None) -> str:
    return "unknown" if ns is None else f"{ns / 1e6:,.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "unknown"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:,.1f} {unit}" if unit != "B" else f"{value} B"


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(
            name, justify="left" if number < left else "right", no_wrap=number >= left, overflow="ellipsis"
        )
    return table


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _add(table: Table, cells: Iterable[str]) -> None:
    table.add_row(*(Text(printable(cell)) for cell in cells))


def _narrow(table: Table) -> None:
    """On a narrow terminal headers wrap and long names fold; numbers and what names a row stay whole.
    A table that is wider all the same goes over the edge, which a terminal wraps."""
    for column in table.columns:
        words = [len(word) for cell in column.cells for word in str(cell).split()]
        column.no_wrap, column.overflow = False, "fold"
        column.min_width = min(max(words, default=0), _NAME_WIDTH)


def show(traces: TraceSet) -> None:
    """Prints breakdown, collectives, ranks compared, what stays exposed, problems and the summary."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    for part in (_parts, _collectives, _skew, _stragglers, _exposed, _problems):
        table = part(traces)
        if table is not None and table.row_count:
            _narrow(table)
            console.print(table, crop=False)
            console.print()
    for line in traces.summary:
        console.print(Text(printable(line)))


def _parts_cells(parts: Parts) -> list[str]:
    return [
        _ms(parts.window_ns),
        *(
            _share(value / parts.window_ns if parts.window_ns else None)
            for value in (
                parts.compute_only_ns,
                parts.overlapped_ns,
                parts.exposed_comm_ns,
                parts.exposed_memory_ns,
                parts.idle_ns,
            )
        ),
        _share(parts.overlap),
    ]


_PART_COLUMNS = ("time ms", "compute only", "overlapped", "exposed comm", "exposed copies", "idle", "comm hidden")


def _parts(traces: TraceSet) -> Table:
    """Each iteration of each rank; of many, each iteration's slowest and fastest rank."""
    rows: dict[str, list[tuple[str, Parts, str, bool]]] = defaultdict(list)
    for t in traces.traces:
        rank = "?" if t.rank is None else str(t.rank)
        for i in t.iterations:
            rows[i.window.name].append((rank, i.parts, i.window.source, i.window.cut))
        if t.parts is not None and (not t.iterations or len(traces.traces) == 1):
            rows["whole"].append((rank, t.parts, "all device events", False))
    many = sum(map(len, rows.values())) > _MANY_ROWS and len(traces.traces) > 1
    table = _table(
        "Iterations" + (" (the slowest and the fastest rank of each)" if many else ""),
        "iteration", "rank", *_PART_COLUMNS, "window from", left=1,
    )  # fmt: skip
    for name, found in rows.items():
        ordered = sorted(found, key=lambda r: -r[1].window_ns)
        shown = [ordered[0], ordered[-1]] if many and len(found) > 2 else found
        for rank, parts, source, cut in shown:
            _add(table, [name, rank, *_parts_cells(parts), source + (", cut" if cut else "")])
    return table


def _collectives(traces: TraceSet) -> Table:
    """Per operation and group; over ranks: means, and the bandwidth of the slowest rank."""
    grouped: dict[tuple[str, str], list[CollectiveRow]] = defaultdict(list)
    for row in traces.collective_rows:
        grouped[row.op, row.group].append(row)
    several = len(traces.traces) > 1
    table = _table(
        "Collectives" + (" (means over ranks)" if several else ""), "operation", "group", "ranks", "n", "count",
        "bytes", "total ms", "exposed ms", "wait ms", "transfer ms", "algbw GB/s", "busbw GB/s", left=2,
    )  # fmt: skip
    for (op, group), rows in sorted(grouped.items(), key=lambda item: -sum(r.exposed_ns for r in item[1])):
        sizes = {r.group_size for r in rows}
        _add(
            table,
            [
                op,
                group,
                str(len(rows)),
                "/".join("?" if n is None else str(n) for n in sorted(sizes, key=lambda n: n or 0)),
                f"{_mean([r.count for r in rows]):g}",
                _bytes(_whole_mean([r.bytes for r in rows])),
                _ms(_mean([r.duration_ns for r in rows])),
                _ms(_mean([r.exposed_ns for r in rows])),
                _ms(_mean([r.wait_ns for r in rows])),
                _ms(_mean([r.transfer_ns for r in rows])),
                _bandwidth([r.algbw_Bps for r in rows], rows),
                _bandwidth([r.busbw_Bps for r in rows], rows),
            ],
        )
    return table


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _whole_mean(values: Sequence[int | None]) -> int | None:
    mean = _mean(values)
    return None if mean is None else round(mean)


def _bandwidth(values: Sequence[float | None], rows: Sequence[CollectiveRow]) -> str:
    known = [v for v in values if v is not None]
    if not known or len(known) < len(values):
        return "unknown"
    lower = any(r.bandwidth_from != "transfer" or r.basis != "aligned" for r in rows)
    return ("≥" if lower else "") + f"{min(known) / 1e9:.2f}"


def _skew(traces: TraceSet) -> Table | None:
    if not traces.matched:
        return None
    costly = sorted(traces.matched, key=lambda m: -m.cost_ns)[:8]
    table = _table(
        "Skew (collectives whose waits cost most)", "operation", "group", "#", "iteration", "start skew ms",
        "end skew ms", "shortest ms", "longest ms", "last rank", "others wait ms", "basis", left=2,
    )  # fmt: skip
    for m in costly:
        duration = m.duration_ns
        _add(
            table,
            [
                m.op, m.group, str(m.index), m.iteration or "–", _ms(m.start_skew_ns), _ms(m.end_skew_ns),
                _ms(int(duration.min())), _ms(int(duration.max())), str(m.last_rank), _ms(m.cost_ns),
                m.basis + (", first" if m.first else ""),
            ],
        )  # fmt: skip
    return table


def _stragglers(traces: TraceSet) -> Table | None:
    late = [s for s in traces.stragglers if s.late][:_MANY_RANKS]
    if not late:
        return None
    compute = {t.rank: t.parts.compute_ns for t in traces.traces if t.parts is not None}
    mean = sum(compute.values()) / len(compute) if compute else 0
    table = _table(
        "Stragglers (the first collective after the start not counted)", "rank", "last in", "of",
        "others wait ms, sum", "behind next to last ms, sum", "compute vs mean",
    )  # fmt: skip
    for s in late:
        excess = compute[s.rank] / mean - 1 if mean and s.rank in compute else None
        _add(
            table,
            [str(s.rank), str(s.late), str(s.collectives), _ms(s.cost_ns), _ms(s.delay_ns),
             "–" if excess is None else f"{excess:+.1%}"],
        )  # fmt: skip
    return table


def _exposed(traces: TraceSet) -> Table:
    table = _table(
        "Exposed collectives (means per iteration and rank)", "operation", "group", "after kernel", "k-th", "at",
        "exposed ms", "of time", "total ms", "bytes", "worst rank", left=3,
    )  # fmt: skip
    for e in traces.exposed:
        _add(
            table,
            [
                e.op, e.group, _short(e.after or "–", 44), str(e.ordinal + 1), _share(e.position),
                _ms(e.exposed_ns), _share(e.share), _ms(e.duration_ns), _bytes(e.bytes), str(e.worst_rank),
            ],
        )  # fmt: skip
    return table


def _problems(traces: TraceSet) -> Table:
    """Problems by code over the ranks; the message is the first rank's."""
    table = _table("Problems", "what", "ranks", "count", "first", left=1)
    grouped: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    order: dict[str, bool] = {}
    for t in traces.traces:
        for p in t.problems:
            grouped[p.code].append((Path(t.file).name, p.count, p.message))
            order[p.code] = p.loss
    for p in traces.set_problems:
        grouped[p.code].append(("–", p.count, p.message))
        order[p.code] = p.loss
    for code in sorted(grouped, key=lambda c: (not order[c], c)):
        found = grouped[code]
        count = sum(n for _, n, _ in found)
        lead = "LOST: " if order[code] else ""
        _add(table, [lead + found[0][2], str(len(found)), str(count), _short(found[0][0], 36)])
    return table
