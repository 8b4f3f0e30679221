"""Tables as CSV that neither a terminal nor a spreadsheet takes for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.text import printable

if TYPE_CHECKING:
    import polars

_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def spreadsheet_cell(text: str) -> str:
    """Returns text for a cell of a CSV file: printable, and never a formula.

    A spreadsheet computes a cell that starts with one of = + - @ (also in their full-width forms) when it opens
    the file; an apostrophe in front makes the cell text.
    """
    shown = printable(text)
    return f"'{shown}" if shown.lstrip(" '\"").startswith(_FORMULA_STARTS) else shown


def frame_to_csv(frame: polars.DataFrame) -> str:
    """Returns a table as CSV. Texts become `spreadsheet_cell`s; numbers and empty cells stay as they are."""
    import polars as pl

    cells = [
        pl.Series(name, [None if text is None else spreadsheet_cell(text) for text in frame[name]], pl.String)
        for name, kind in frame.schema.items()
        if kind == pl.String
    ]
    return frame.with_columns(cells).write_csv()
