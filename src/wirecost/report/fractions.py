"""Tables of communication fractions in the reference study's layout: workload x network down, scales across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.report.cells import Cell, Scale
from wirecost.report.study_report import StudyReport


@dataclass(frozen=True)
class FractionTable:
    """A table of the communication fractions under one plan.

    A row holds a workload, a network, and the cells below `scales`, None for a missing cell. A table has only rows
    with at least one cell.
    """

    scales: tuple[Scale, ...]
    rows: tuple[tuple[str, str, tuple[Cell | None, ...]], ...]


def fraction_tables(
    report: StudyReport, plan: str, scale_groups: Sequence[Sequence[Scale]]
) -> list[FractionTable]:
    """Returns one table for each group of scales in `scale_groups`.

    The run time is proportional to the number of cells, not to rows times columns.
    """
    table_of = {scale: number for number, scales in enumerate(scale_groups) for scale in scales}
    rows: list[dict[tuple[str, str], dict[Scale, Cell]]] = [{} for _ in scale_groups]
    for workload, network, cells in report.rows(plan):
        for cell in cells:
            rows[table_of[cell.scale]].setdefault((workload, network), {})[cell.scale] = cell
    return [
        FractionTable(
            tuple(scales), tuple((*names, tuple(map(by_scale.get, scales))) for names, by_scale in of.items())
        )
        for scales, of in zip(scale_groups, rows, strict=True)
    ]
