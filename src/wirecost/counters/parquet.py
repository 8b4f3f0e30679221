"""Rows as Parquet. Rows go to a JSON lines file beside it first, which stays if the recording is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wirecost.address_space import check_room_for_polars
from wirecost.counters.jsonl import JsonlWriter
from wirecost.counters.rows import Event, Row
from wirecost.errors import WirecostError
from wirecost.reading import open_file

MOST_ROWS = 100_000_000
"""Ten devices, ten times a second, for eleven days."""
_BATCH_ROWS = 100_000
_INTEGERS = ("t_ns", "unix_ns", "rx_bytes", "tx_bytes", "late_ns", "rx_packets", "tx_packets")
_FLOATS = ("rx_Bps", "tx_Bps", "link_Bps", "softirq_cores", "softirq_busiest_core", "net_rx_per_s", "net_tx_per_s")


class ParquetWriter:
    """Writes `path` when closed, in a stream, so that a recording of days fits in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_room_for_polars()
        self._path = Path(path)
        self._spool = self._path.with_name(self._path.name + ".partial.jsonl")
        self._writer = JsonlWriter(self._spool)

    def write(self, rows: Sequence[Row]) -> None:
        self._writer.write(rows)

    def close(self) -> None:
        import polars as pl

        self._writer.close()
        types = {name: _type(pl, name) for name in Row.__dataclass_fields__}
        unfinished = self._path.with_name(self._path.name + ".partial")
        try:
            if self._spool.stat().st_size == 0:
                pl.DataFrame(schema=types).write_parquet(unfinished)
            else:
                pl.scan_ndjson(self._spool, schema=types).sink_parquet(unfinished)
            unfinished.replace(self._path)
        except OSError as error:
            raise WirecostError(
                f"can't write '{self._path}': {error}; the samples are in '{self._spool}'"
            ) from None
        self._spool.unlink()


def read_parquet(path: str | os.PathLike[str]) -> list[Row]:
    """Returns the rows of a file that ParquetWriter wrote, see `iterate_parquet`."""
    return list(iterate_parquet(path))


def iterate_parquet(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yields the rows of a file that ParquetWriter wrote.

    Raises:
        WirecostError: where it holds something else, or more than `MOST_ROWS` rows.
    """
    check_room_for_polars()
    import polars as pl

    types = {name: _type(pl, name) for name in Row.__dataclass_fields__}
    with open_file(Path(path), pipes=False):
        pass  # no device, directory or socket
    try:
        table = pl.scan_parquet(Path(path))
        schema = table.collect_schema()
        older = {name: kind for name, kind in types.items() if name != "events"}
        if schema not in (types, older):  # older recordings have no events
            raise WirecostError(f"can't read '{os.fspath(path)}' as a recording: it has other columns")
        count = int(table.select(pl.len()).collect().item())
        # The format lets a small file claim any number of rows.
        if count > MOST_ROWS:
            raise WirecostError(f"can't read '{os.fspath(path)}' as a recording: {count} rows, over {MOST_ROWS}")
        for start in range(0, count, _BATCH_ROWS):
            for row in table.slice(start, _BATCH_ROWS).collect().iter_rows(named=True):
                yield _row(row)
    except (OSError, TypeError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        raise WirecostError(f"can't read '{os.fspath(path)}' as a recording: {first}") from None


def _row(columns: dict[str, Any]) -> Row:
    events = columns.pop("events", None)
    return Row(**columns, events=None if events is None else tuple(Event(**event) for event in events))


def _type(pl: Any, name: str) -> Any:
    if name in _INTEGERS:
        return pl.Int64
    if name == "events":
        return pl.List(pl.Struct({"counter": pl.String, "count": pl.Int64}))
    return pl.Float64 if name in _FLOATS else pl.String
