"""`TraceSet`: the results of a set of traces as tables, as a `Breakdown` and in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wirecost.trace.answered_traces import AnsweredTraces
from wirecost.trace.tables import as_dict, frame

if TYPE_CHECKING:
    import polars


class TraceSet(AnsweredTraces):
    """Traces of one run, in order of rank. Tables are polars DataFrames; times in ns, bandwidths in bytes/s."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented JSON form (docs/how-to/trace.md)."""
        return as_dict(self)

    def table(self, name: str) -> polars.DataFrame:
        """Returns one of `tables.NAMES` as a DataFrame."""
        return frame(self, name)

    @property
    def ranks(self) -> polars.DataFrame:
        return self.table("ranks")

    @property
    def iterations(self) -> polars.DataFrame:
        return self.table("iterations")

    @property
    def collectives(self) -> polars.DataFrame:
        return self.table("collectives")

    @property
    def calls(self) -> polars.DataFrame:
        return self.table("calls")

    @property
    def skew(self) -> polars.DataFrame:
        return self.table("skew")

    @property
    def diagnostics(self) -> polars.DataFrame:
        return self.table("diagnostics")

    @property
    def problems(self) -> polars.DataFrame:
        """The table of diagnostics under its former name."""
        return self.diagnostics
