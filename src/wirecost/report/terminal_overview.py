"""Prints the overview of a large study on the terminal: its communication fractions in few rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirecost.report.cells import Cell
from wirecost.report.overview import Cross, Dimension, cross, dimensions, highest
from wirecost.report.study_report import StudyReport
from wirecost.report.terminal_tables import make_table, number_range

MOST_ROWS = 20
MOST_COLUMNS = 24
HIGHEST = 10


def print_overview(report: StudyReport, console: Console) -> None:
    """Prints the communication fractions by each dimension, by network and plan, and the highest ones."""
    console.print(_by_dimension(report))
    crossed = cross(report, MOST_ROWS, MOST_COLUMNS)
    if crossed is not None:
        for table in _cross(report, crossed, console.width):
            console.print(table)
    console.print()
    console.print(_highest(report))
    console.print()


def _by_dimension(report: StudyReport) -> Table:
    table = make_table(
        f"Communication as a fraction of the iteration: mean over experiments of each one's median "
        f"({len(report.cells)} experiments)"
    )
    table.add_column("")
    table.add_column("")
    for name in ("with result", "mean", "lowest", "highest"):
        table.add_column(name, justify="right")
    for dimension in dimensions(report):
        _add_dimension(table, report, dimension)
        table.add_section()
    return table


def _add_dimension(table: Table, report: StudyReport, dimension: Dimension) -> None:
    is_network = dimension.name == "network"
    for number, share in enumerate(dimension.shares[:MOST_ROWS]):
        name = report.network_label(share.name) if is_network else share.name
        table.add_row(
            Text("" if number else dimension.name),
            Text(name),
            f"{share.done} of {share.cells}",
            *(f"{value:.2f}" if value is not None else "-" for value in (share.mean, share.lowest, share.highest)),
        )
    if left_out := len(dimension.shares[MOST_ROWS:]):
        table.add_row("", f"and {left_out} more")


def _cross(report: StudyReport, crossed: Cross, width: int) -> list[Table]:
    """Returns the cross table, split into as many tables as the width requires."""
    names_width = max((len(report.network_label(name)) for name, _ in crossed.rows), default=0) + 1
    tables = []
    for columns in _beside(crossed.columns, width - names_width):
        title = f"Mean fraction by network and {crossed.across}"
        table = make_table(f"{title}, continued" if tables else title)
        table.add_column("network")
        for place in columns:
            table.add_column(Text(crossed.columns[place]), justify="right")
        for name, shares in crossed.rows:
            means = (share.mean if (share := shares[place]) else None for place in columns)
            table.add_row(Text(report.network_label(name)), *(f"{m:.2f}" if m is not None else "-" for m in means))
        tables.append(table)
    if tables and (crossed.more_rows or crossed.more_columns):
        left_out = f"{crossed.more_rows} more networks and {crossed.more_columns} more of {crossed.across}"
        tables[-1].caption = Text(f"and {left_out}: --only narrows the report down")
        tables[-1].caption_justify = "left"
    return tables


def _beside(names: Sequence[str], width: int) -> list[list[int]]:
    """Groups the indices of names so that each group fits into the width; a group has at least one."""
    groups: list[list[int]] = []
    free_width = 0
    for place, name in enumerate(names):
        needed = max(len(name), len("0.00")) + 1
        if not groups or needed > free_width:
            groups.append([])
            free_width = width
        groups[-1].append(place)
        free_width -= needed
    return groups


def _quartiles(cell: Cell) -> str:
    """Returns the quartiles of a cell's communication fraction in brackets; nothing for a command."""
    spread = cell.comm_fraction
    return "" if spread is None else f" ({spread.q1:.2f}-{spread.q3:.2f})"


def _highest(report: StudyReport) -> Table:
    shown = highest(report, HIGHEST)
    counts = sorted({fraction.n for _, fraction in shown})
    of = f"n = {number_range(counts)} {report.samples}" if counts else report.samples
    table = make_table(f"Highest communication fractions (medians of {of}, with quartiles)")
    for name in ("workload", "network", "plan", "scale"):
        table.add_column(name)
    table.add_column("fraction", justify="right")
    for cell, fraction in shown:
        table.add_row(
            Text(cell.workload),
            Text(report.network_label(cell.network)),
            Text(cell.plan),
            Text(cell.scale.label),
            f"{fraction.fraction_text()}{_quartiles(cell)}{cell.mark}",
        )
    return table
