"""Selects the cells of a study's report by network, plan, workload, scaling rule or number of ranks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from wirecost.errors import SpecError, one_of
from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport
from wirecost.text import printable

MOST_NAMED = 30
"""Most allowed values that an error lists."""

KEYS = {
    "workload": lambda cell: cell.workload,
    "network": lambda cell: cell.network,
    "plan": lambda cell: cell.plan,
    "scaling": lambda cell: str(cell.scale.scaling or ""),
    "ranks": lambda cell: str(cell.scale.ranks),
}


def select(report: StudyReport, conditions: Iterable[str]) -> StudyReport:
    """Returns the report of the cells that meet all conditions.

    Args:
        conditions: texts of the form `KEY=VALUE`; several with the same key allow each of their values.

    Raises:
        SpecError: if no cell meets one of the conditions, or none meets all of them.
    """
    allowed: dict[str, set[str]] = {}
    for condition in conditions:
        key, _, value = condition.partition("=")
        if key not in KEYS or not value:
            raise SpecError(f"--only {printable(condition)}: should be KEY=VALUE, KEY one of {', '.join(KEYS)}")
        known = dict.fromkeys(KEYS[key](cell) for cell in report.cells)
        if value not in known:
            raise SpecError(f"--only: {_unknown(key, value, known)}")
        allowed.setdefault(key, set()).add(value)
    if not allowed:
        return report
    cells = tuple(c for c in report.cells if _meets(c, allowed))
    if not cells:
        raise SpecError("--only: no cell of the study meets all of these conditions together")
    networks = {c.network for c in cells}
    return replace(
        report,
        cells=cells,
        networks=tuple(n for n in report.networks if n in networks),
        benchmarks=tuple(b for b in report.benchmarks if b.network in networks),
    )


def _meets(cell: Cell, allowed: dict[str, set[str]]) -> bool:
    return all(KEYS[key](cell) in values for key, values in allowed.items())


def _unknown(key: str, value: str, known: Iterable[str]) -> str:
    names = list(known)
    if len(names) <= MOST_NAMED:
        return one_of(key, printable(value), map(printable, names))
    near = difflib.get_close_matches(value, names, n=3)
    hint = f" (did you mean {' or '.join(map(printable, near))}?)" if near else ""
    return f"no {key} '{printable(value)}' among the study's {len(names)}{hint}"
