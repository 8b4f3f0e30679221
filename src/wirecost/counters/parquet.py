"""Writes rows as Parquet. They go to a JSON lines file beside it first, which remains if the
recording is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from wirecost.address_space import check_room_for_polars
from wirecost.counters.jsonl import JsonlWriter
from wirecost.counters.parquet_reader import column_types, rows_of
from wirecost.counters.rows import Row
from wirecost.errors import WirecostError
from wirecost.reading import open_file


class ParquetWriter:
    """Writes `path` when it is closed, as a stream, so that a recording of several days fits in memory."""

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
        types = column_types(pl)
        unfinished = self._path.with_name(self._path.name + ".partial")
        try:
            if self._spool.stat().st_size == 0:
                pl.DataFrame(schema=types).write_parquet(unfinished)
            else:
                pl.scan_ndjson(self._spool, schema=types).sink_parquet(unfinished)
            unfinished.replace(self._path)
        # The library raises its own errors for some faults of the storage.
        except (OSError, pl.exceptions.PolarsError) as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
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
        WirecostError: if the file has another format or more than `parquet_reader.MOST_ROWS` rows.
    """
    check_room_for_polars()
    with open_file(Path(path), pipes=False):
        pass  # refuses devices, directories and sockets
    yield from rows_of(Path(path))
