"""The tables that people read: text cells, few columns, the most important rows first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from wirecost.breakdown import Parts
from wirecost.diagnostics import Diagnostic, loses_data
from wirecost.trace.kernel_evidence import short_name
from wirecost.trace.loads import RankLoad, loads
from wirecost.trace.tables import NAMES, rows_of
from wirecost.trace.view_cells import cell_text, cut, ms, rank_text, share, size

if TYPE_CHECKING:
    from wirecost.trace.collective_rows import CollectiveRow
    from wirecost.trace.result import TraceSet

_KINDS = {"kernel": "compute"}  # class of device work that is not communication


class View(msgspec.Struct):
    """A table as text. The first `text_columns` columns hold text, the others numbers.

    `note` names what is not shown.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    text_columns: int = 1
    note: str = ""


def ranks_view(s: TraceSet, most: int | None = None) -> View:
    """Returns the ranks by category, means per iteration. `most`: of more ranks than this only the telling
    ones."""
    listed = loads(s)
    shown = listed if most is None or len(listed) <= most else _telling(s, listed, most)
    parts = [
        ("compute", "compute_only_ns"), ("overlap", "overlapped_ns"), ("transfer", "transfer_ns"),
        ("wait", "wait_ns"), ("bubble", "bubble_ns"),
        ("exposed", "unsplit_ns"), ("copies", "memory_ns"), ("idle", "idle_ns"),
    ]  # fmt: skip
    optional = {"overlap", "transfer", "wait", "bubble", "exposed", "copies"}
    used = [
        (label, field)
        for label, field in parts
        if label not in optional or any(getattr(x, field) >= 0.0005 * x.window_ns for x in listed)
    ]
    marked = any(load.iterations for load in listed)
    rows = [
        [
            rank_text(load.rank) + (" <" if load.rank in s.answer.ranks else ""), ms(load.window_ns),
            *(share(getattr(load, field) / load.window_ns if load.window_ns else None) for _, field in used),
        ]
        for load in shown
    ]  # fmt: skip
    notes = []
    if len(shown) < len(listed):
        notes.append(f"{len(shown)} of {len(listed)} ranks: those the cause lies with, and the extremes.")
    if s.answer.ranks:
        notes.append("< the cause lies here.")
    if any(label == "exposed" for label, _ in used):
        notes.append("exposed: communication in which wait and transfer can't be told apart.")
    title = "Ranks by category, means per iteration" if marked else "Ranks by category, the recorded window"
    return View(title, ["rank", "ms", *(label for label, _ in used)], rows, 1, " ".join(notes))


def _telling(s: TraceSet, listed: Sequence[RankLoad], most: int) -> list[RankLoad]:
    """Returns the blamed ranks, then the extremes of each category, in order of rank."""
    chosen: dict[int, RankLoad] = {}
    for n, load in enumerate(listed):
        if load.rank in s.answer.ranks and len(chosen) < most // 2:
            chosen[n] = load
    fields = ("window_ns", "idle_ns", "compute_only_ns", "wait_ns", "transfer_ns", "memory_ns")
    for pick in (max, min):
        for field in fields:
            n = pick(range(len(listed)), key=lambda i, f=field: getattr(listed[i], f))
            if len(chosen) < most:
                chosen[n] = listed[n]
    for n, load in enumerate(listed):
        if len(chosen) < most:
            chosen.setdefault(n, load)
    return [chosen[n] for n in sorted(chosen)]


def iterations_view(s: TraceSet) -> View:
    """Returns every iteration of every rank."""
    rows: dict[str, list[list[str]]] = defaultdict(list)
    for t in s.traces:
        for i in t.iterations:
            rows[i.window.name].append(
                [
                    i.window.name,
                    rank_text(t.rank),
                    *_part_cells(i.parts),
                    i.window.source + (", cut" if i.window.cut else ""),
                ]
            )
        if t.parts is not None and (not t.iterations or len(s.traces) == 1):
            rows["whole"].append(["whole", rank_text(t.rank), *_part_cells(t.parts), "recording"])
    heads = ["iteration", "rank", "ms", "compute", "overlap", "exposed", "copies", "idle", "window from"]
    return View("Iterations", heads, [row for listed in rows.values() for row in listed])


def _part_cells(p: Parts) -> list[str]:
    parts = (p.compute_only_ns, p.overlapped_ns, p.exposed_comm_ns, p.exposed_memory_ns, p.idle_ns)
    return [ms(p.window_ns), *(share(value / p.window_ns if p.window_ns else None) for value in parts)]


def collectives_view(s: TraceSet) -> View:
    """Returns operations by group; over ranks: means, and the bandwidth of the slowest rank."""
    grouped: dict[tuple[str, str], list[CollectiveRow]] = defaultdict(list)
    for row in s.collective_rows:
        grouped[row.op, row.group].append(row)
    rows = []
    for (op, group), listed in sorted(grouped.items(), key=lambda item: -sum(r.exposed_ns for r in item[1])):
        rows.append(
            [
                op, group, f"{_mean([r.count for r in listed]):g}",
                size(_whole_mean([r.bytes for r in listed])), ms(_mean([r.duration_ns for r in listed])),
                ms(_mean([r.exposed_ns for r in listed])), ms(_mean([r.wait_ns for r in listed])),
                ms(_mean([r.transfer_ns for r in listed])), _bandwidth([r.busbw_Bps for r in listed], listed),
            ]
        )  # fmt: skip
    heads = ["operation", "group", "count", "bytes", "ms", "exposed", "wait", "transfer", "bus GB/s"]
    title = "Collectives, means over ranks" if len(s.traces) > 1 else "Collectives"
    note = "Times in ms. bus: bus bandwidth of the slowest rank." + (
        " ≥: wait is not known for all calls." if any("≥" in r[-1] for r in rows) else ""
    )
    return View(title, heads, rows, 2, note)


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


def exposed_view(s: TraceSet) -> View:
    rows = [
        [
            e.op, e.group, short_name(e.after or "–", 30), e.cause.replace("_", " "), str(e.ordinal + 1),
            ms(e.exposed_ns), share(e.share), str(e.worst_rank),
        ]
        for e in s.exposed
    ]  # fmt: skip
    heads = ["operation", "group", "after kernel", "exposed because", "k-th", "ms", "of time", "rank"]
    return View("Exposed collectives, means per iteration and rank", heads, rows, 4, "rank: exposes it most.")


def causes_view(s: TraceSet) -> View:
    """Returns why communication is exposed, over all ranks and iterations."""
    rows = [
        [
            c.code, c.text + (f" ({c.host_call})" if c.host_call else ""), share(c.share), ms(c.exposed_ns),
            str(c.calls), "–" if c.rank is None else str(c.rank),
        ]
        for c in s.causes
    ]  # fmt: skip
    heads = ["code", "exposed because", "share", "ms", "calls", "rank"]
    return View("Causes of exposed communication, sums over ranks and iterations", heads, rows, 2)


def skew_view(s: TraceSet) -> View:
    rows = [
        [
            m.op, m.group, m.iteration or "–", m.basis + (", first" if m.first else ""), str(m.index),
            ms(m.start_skew_ns), ms(int(m.duration_ns.min())), str(m.last_rank), ms(m.cost_ns),
        ]
        for m in sorted(s.matched, key=lambda m: -m.cost_ns)
    ]  # fmt: skip
    heads = ["operation", "group", "iteration", "basis", "#", "skew", "shortest", "last", "others wait"]
    return View("Skew: collectives by what the others wait for the last rank, in ms", heads, rows, 4)


def stragglers_view(s: TraceSet) -> View:
    compute = {t.rank: t.parts.compute_ns for t in s.traces if t.parts is not None}
    mean = sum(compute.values()) / len(compute) if compute else 0
    rows = []
    for x in s.stragglers:
        excess = compute[x.rank] / mean - 1 if mean and x.rank in compute else None
        rows.append(
            [str(x.rank), str(x.late), str(x.collectives), ms(x.cost_ns), ms(x.delay_ns),
             "–" if excess is None else f"{excess:+.1%}"]
        )  # fmt: skip
    late = "last rank later than the one before it, ms"
    heads = ["rank", "last in", "of", "others wait ms", late, "compute vs mean"]
    return View("Stragglers (sums; the first collective after the profiler's start is left out)", heads, rows)


def diagnostics_view(s: TraceSet) -> View:
    """Returns diagnostics by code over the ranks, those of lost data first; the message is the first rank's."""
    by_code: dict[str, list[tuple[str, Diagnostic]]] = defaultdict(list)
    for t in s.traces:
        for each in t.diagnostics:
            by_code[each.code].append((Path(t.file).name, each))
    for each in s.run_diagnostics:
        by_code[each.code].append(("–", each))
    rows = []
    for code, listed in sorted(by_code.items(), key=lambda item: (not loses_data(item[1][0][1]), item[0])):
        file, first = listed[0]
        message = ("data lost: " if loses_data(first) else "") + first.message
        if first.remedy:
            message += f" -> {first.remedy}"
        count = sum(each.count or 0 for _, each in listed)
        rows.append([first.severity.value, code, message, cut(file, 36), str(len(listed)), str(count)])
    return View("Diagnostics", ["severity", "code", "what", "first in", "ranks", "count"], rows, 4)


def kernels_view(s: TraceSet) -> View:
    """Returns every name with its class and the reason, over all ranks, the longest first."""
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for use in (use for t in s.traces for use in t.kernels):
        entry = sums[use.name, "communication" if use.communicates else use.kind, use.why]
        entry[0] += use.count
        entry[1] += use.total_ns
    total_ns = sum(ns for _, ns in sums.values())
    rows = [
        [
            cut(name, 200),
            _KINDS.get(kind, kind),
            why,
            str(count),
            ms(ns),
            share(ns / total_ns if total_ns else None),
        ]
        for (name, kind, why), (count, ns) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    title = "Kernels, copies and fills" + (", sums over ranks" if len(s.traces) > 1 else "")
    return View(title, ["name", "counts as", "why", "count", "ms", "share"], rows, 3)


def losses_view(s: TraceSet) -> View:
    rows = [[c.code, c.text, c.remedy, share(c.gain_share), ms(c.gain_ns)] for c in s.losses]
    return View("Losses, by what could be won at most", ["code", "loss", "try", "gain", "ms"], rows, 3)


def _plain_view(name: str) -> Callable[[TraceSet], View]:
    """Returns a table as it is, with times in ms."""

    def view(s: TraceSet) -> View:
        columns, rows = rows_of(s, name)
        heads = [c.removesuffix("_ns") + " ms" if c.endswith("_ns") else c for c in columns]
        # Absolute times have 19 digits, so times after the first are shown.
        first = min((row["start_ns"] for row in rows if row.get("start_ns") is not None), default=0)
        cells = [[cell_text(c, row[c] - first if c == "start_ns" else row[c]) for c in columns] for row in rows]
        return View(
            name.replace("_", " ").capitalize(),
            heads,
            cells,
            0,
            "start: after the first." if "start_ns" in columns else "",
        )

    return view


def straggler_costs_view(s: TraceSet) -> View:
    """Returns what ranks, hosts, stages and kinds of operations cost, the largest of each first."""
    rows = [[c.of, c.name, ms(c.cost_ns), share(c.share)] for c in s.straggler_costs.costs]
    title = f"Stragglers, per iteration: {s.straggler_costs.sentence}"
    return View(title, ["of", "name", "costs ms", "share"], rows, 2)


_OWN: dict[str, Callable[[TraceSet], View]] = {
    "ranks": ranks_view,
    "iterations": iterations_view,
    "collectives": collectives_view,
    "exposed": exposed_view,
    "skew": skew_view,
    "stragglers": stragglers_view,
    "straggler_costs": straggler_costs_view,
    "kernels": kernels_view,
    "losses": losses_view,
    "causes": causes_view,
    "diagnostics": diagnostics_view,
}
VIEWS: dict[str, Callable[[TraceSet], View]] = {name: _OWN.get(name) or _plain_view(name) for name in NAMES}
