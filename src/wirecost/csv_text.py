"""Writes tables as CSV whose cells neither a terminal nor a spreadsheet interprets as commands."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wirecost.text import printable

_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def spreadsheet_cell(text: str) -> str:
    """Returns text for a cell of a CSV file: printable, and never a formula.

    A spreadsheet evaluates a cell that starts with one of = + - @ (also in their full-width forms) when it opens
    the file. A leading apostrophe makes such a cell text.
    """
    shown = printable(text)
    return f"'{shown}" if shown.lstrip(" '\"").startswith(_FORMULA_STARTS) else shown


def rows_to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns a table as CSV. Texts pass through `spreadsheet_cell`, numbers stay numbers, and None becomes an
    empty cell.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return spreadsheet_cell(value) if isinstance(value, str) else value
