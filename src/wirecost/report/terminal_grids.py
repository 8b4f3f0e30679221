"""The terminal tables of a study's report that have its scales beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from wirecost.report.cells import Cell, Scale
from wirecost.report.fractions import fraction_tables
from wirecost.report.study_report import StudyReport
from wirecost.report.terminal_tables import make_table

MOST_COLUMNS = 100
"""Most scales beside each other, however wide the terminal is."""


def fractions(report: StudyReport, plan: str, width: int) -> list[Table]:
    """Returns tables that fit the width, with workload x network down and <ranks, global batch> across.

    This is the layout of the interconnect study's tables (doi 10.1109/MM.2024.3360081).
    """
    predicted = "; p: predicted, not measured" if report.predicted else ""
    title = f"Communication as a fraction of the iteration, {plan} (median of n {report.samples}{predicted})"
    labels = {network: report.network_label(network) for network in report.networks}
    names_width = sum(
        max((len(name) for name in names), default=0) + 1
        for names in ((w for w, *_ in report.rows(plan)), (labels[n] for _, n, _ in report.rows(plan)), ("4/8",))
    )
    scale_groups = _beside(report.scales(plan), width - names_width)
    tables = []
    for part in fraction_tables(report, plan, scale_groups):
        table = make_table(f"{title}, continued" if tables else title)
        table.add_column("workload")
        table.add_column("network")
        for scale in part.scales:
            table.add_column(Text(f"{scale.scaling or ''}\n{scale}"), justify="right")
        table.add_column("n", justify="right")
        for _, rows in groupby(part.rows, key=lambda row: row[0]):
            for workload, network, cells in rows:
                counts = {c.exposed.n for c in cells if c and c.exposed}
                table.add_row(
                    Text(workload),
                    Text(labels[network]),
                    *(Text(c.text if c else "-") for c in cells),
                    "/".join(map(str, sorted(counts))) or "-",
                )
            table.add_section()
        tables.append(table)
    return tables


def iteration_times(report: StudyReport, width: int) -> list[Table]:
    """Returns tables of the iteration times that fit the width, with workload x network x plan down and scales
    across. Plans are compared by them, because a fraction also changes with the time of the computation.
    """
    scales = list(dict.fromkeys(scale for plan in report.plans for scale in report.scales(plan)))
    rows: dict[tuple[str, str, str], dict[Scale, str]] = {}
    for plan in report.plans:
        for workload, network, cells in report.rows(plan):
            row = rows.setdefault((workload, report.network_label(network), plan), {})
            row.update({cell.scale: _milliseconds(cell) for cell in cells})
    texts = [text for row in rows.values() for text in row.values()]
    names_width = sum(max((len(names[i]) for names in rows), default=0) + 1 for i in range(3))
    tables = []
    title = "Iteration, ms: median (first to third quartile)"
    if report.over_repeats:
        title = "Iteration, ms: median over repeats of each one's median (95 % interval over repeats)"
    order = sorted(rows, key=lambda names: (report.workloads.index(names[0]), list(rows).index(names)))
    for group in _beside(scales, width - names_width, max(map(len, texts), default=0)):
        table = make_table(f"{title}, continued" if tables else title)
        for name in ("workload", "network", "plan"):
            table.add_column(name)
        for scale in group:
            table.add_column(Text(f"{scale.scaling or ''}\n{scale}"), justify="right")
        for names in order:
            if not rows[names].keys().isdisjoint(group):
                table.add_row(*map(Text, names), *(Text(rows[names].get(scale, "-")) for scale in group))
        tables.append(table)
    return tables


def _milliseconds(cell: Cell) -> str:
    spread = cell.summary.iteration_ns if cell.summary else None
    if spread is None:
        return cell.text
    interval = cell.iteration_interval_ns
    if cell.over_repeats and interval is None:
        return f"{spread.median * 1e-6:,.4g} (one repeat){cell.mark}"
    bounds = (interval.low, interval.high) if interval else (spread.q1, spread.q3)
    low, middle, high = (f"{ns * 1e-6:,.4g}" for ns in (bounds[0], spread.median, bounds[1]))
    return f"{middle} ({low} to {high}){cell.mark}"


def _beside(scales: Sequence[Scale], width: int, least: int = 0) -> list[Sequence[Scale]]:
    """Groups scales so that the columns of each group fit into the width; a group has at least one.

    Args:
        least: least width of a column.
    """
    groups: list[list[Scale]] = []
    free_width = 0
    for scale in scales:
        needed = max(len(str(scale)), len(str(scale.scaling)), len("skipped"), least) + 1
        if not groups or needed > free_width or len(groups[-1]) == MOST_COLUMNS:
            groups.append([])
            free_width = width
        groups[-1].append(scale)
        free_width -= needed
    return list(groups)
