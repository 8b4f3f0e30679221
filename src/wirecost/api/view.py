"""What every result of the Python API offers: tables as DataFrames, a chart, and HTML in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wirecost.errors import MissingExtraError, WirecostError, one_of

if TYPE_CHECKING:
    import altair
    import pandas
    import polars

Rows = Sequence[Mapping[str, Any]]
"""The rows of a table. All rows have the same keys in the same order, and None is an unknown value."""

_MOST_HTML_ROWS = 30


class ResultView(ABC):
    """A result with one or several tables.

    `tables` names the tables; the first one is the main table, which is used where no table is named.
    """

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, with the main table first."""

    @abstractmethod
    def _rows(self, table: str) -> Rows:
        """Returns the rows of one of `tables`."""

    @abstractmethod
    def chart(self) -> altair.TopLevelMixin:
        """Returns the picture of this result as an Altair chart; `.save("chart.svg")` writes it to a file."""

    @abstractmethod
    def _headline(self) -> str:
        """Returns the answer in one or a few lines of text."""

    def rows(self, table: str | None = None) -> Rows:
        """Returns the rows of a table as mappings. Times end in `_ns`, `_ms` or `_s`, sizes in `_bytes`.

        Args:
            table: one of `tables`. None is the main table.

        Raises:
            WirecostError: if there is no such table.
        """
        name = self.tables[0] if table is None else table
        if name not in self.tables:
            raise WirecostError(one_of("table", name, self.tables))
        return self._rows(name)

    def to_polars(self, table: str | None = None) -> polars.DataFrame:
        """Returns a table as a polars DataFrame.

        Args:
            table: one of `tables`. None is the main table.

        Raises:
            WirecostError: if there is no such table.
        """
        import polars

        return polars.DataFrame(list(self.rows(table)), infer_schema_length=None)

    def to_pandas(self, table: str | None = None) -> pandas.DataFrame:
        """Returns a table as a pandas DataFrame. It needs pandas, and no pyarrow.

        Args:
            table: one of `tables`. None is the main table.

        Raises:
            WirecostError: if there is no such table.
            MissingExtraError: if pandas isn't installed.
        """
        rows = self.rows(table)
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("to_pandas", "notebook") from None
        return pandas.DataFrame.from_records([dict(row) for row in rows])

    def __str__(self) -> str:
        return self._headline()

    def __repr__(self) -> str:
        """Returns the answer, so that an interactive Python shows it."""
        return self._headline()

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the answer, and the first rows of the main table."""
        from html import escape

        rows = self.rows()
        lines = [f"<p>{escape(line)}</p>" for line in self._headline().splitlines() if line]
        if rows:
            lines.append("<table><thead><tr>")
            lines += [f"<th>{escape(str(key))}</th>" for key in rows[0]]
            lines.append("</tr></thead><tbody>")
            for row in rows[:_MOST_HTML_ROWS]:
                lines.append(
                    "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
                )
            lines.append("</tbody></table>")
            if len(rows) > _MOST_HTML_ROWS:
                lines.append(f"<p>{len(rows) - _MOST_HTML_ROWS} more rows: <code>.rows()</code></p>")
        return "".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
