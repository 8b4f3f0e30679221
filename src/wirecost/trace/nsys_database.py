"""Reads an SQLite file that may be hostile, such as an export of Nsight Systems."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wirecost.reading import open_file
from wirecost.trace.source import TraceError

_LONGEST_VALUE_BYTES = 1 << 24
_ROW_BYTES, _LEAST_ROWS = 4, 1000
"""A row takes a pointer of 2 bytes in its page, a length, a key and a header (SQLite file format, 1.6)."""
_LEAST_TEXT_BYTES = 1 << 20
_STEPS, _STEPS_PER_BYTE, _LEAST_STEPS = 100_000, 4, 50_000_000
"""A query may take `_LEAST_STEPS` steps of SQLite's virtual machine and `_STEPS_PER_BYTE` for each byte of the
file, counted every `_STEPS`. Reading a row of 50 bytes takes about 30."""


class Database:
    """An export of Nsight Systems opened read-only. Any fault of the database is a TraceError that names it.

    A hostile database can hold unbounded views, computed columns and shared pages. So the steps, rows and text of
    a query are limited by what a file of this size can hold.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_file(path, pipes=False, error=TraceError) as file:
            self._size = os.fstat(file.fileno()).st_size
        self._text_left = 0
        self._steps_left = 0
        try:
            self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error as error:
            raise TraceError(f"{path}: {error}") from error
        self._db.text_factory = self._text
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        self._db.set_progress_handler(self._step, _STEPS)

    def _text(self, raw: bytes) -> str:
        self._text_left -= len(raw)
        if self._text_left < 0:
            raise TraceError(
                f"{self._path}: not a valid Nsight Systems export: it gives more text than a file of its size can "
                "hold"
            )
        return raw.decode("utf-8", "replace")

    def _step(self) -> bool:
        """Returns whether a query has taken more steps than the file's rows can account for, which ends it."""
        self._steps_left -= _STEPS
        return self._steps_left < 0

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def rows(self, query: str, arguments: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yields the rows of a query.

        Raises:
            TraceError: if the database is broken, or gives more than a file of its size can hold.
        """
        self._text_left = _LEAST_TEXT_BYTES + 2 * self._size
        self._steps_left = _LEAST_STEPS + _STEPS_PER_BYTE * self._size
        most_rows = _LEAST_ROWS + self._size // _ROW_BYTES
        try:
            for number, row in enumerate(self._db.execute(query, arguments)):
                if number >= most_rows:
                    raise TraceError(
                        f"{self._path}: not a valid Nsight Systems export: it gives more rows than a file of its "
                        "size can hold"
                    )
                yield row
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The library can't even put a message together that quotes a name with invalid UTF-8.
            reason = "its schema is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise TraceError(f"{self._path}: not a valid Nsight Systems export: {reason}") from error

    def columns(self, table: str) -> set[str]:
        """Returns the names of a table's stored columns; those that are computed don't count."""
        return {row[1] for row in self.rows(f'PRAGMA table_xinfo("{table}")') if row[6] == 0}
