"""Writes rows as JSON lines, which can be read while the file grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from wirecost.counters.rows import Row
from wirecost.errors import WirecostError
from wirecost.reading import open_file
from wirecost.storage import StorageError, fault_of

_LONGEST_LINE_BYTES = 1 << 16  # a row takes some hundred bytes
_NAMES = tuple(Row.__dataclass_fields__)
_FLUSH_EVERY_NS = 1_000_000_000  # most that a crash loses


class JsonlWriter:
    """Writes rows to a file, flushed once a second. `sparse` leaves out unknown values instead of writing null,
    which takes less than half the bytes.

    Raises:
        WirecostError: if the file can't be written; a StorageError if the storage is the cause.
    """

    def __init__(self, path: str | os.PathLike[str], *, sparse: bool = False) -> None:
        import msgspec

        self._path = os.fspath(path)
        self._encode = msgspec.json.Encoder().encode_lines
        self._sparse = sparse
        try:
            self._file = Path(path).open("wb")  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise self._error(error) from None
        self._flush_ns = time.monotonic_ns() + _FLUSH_EVERY_NS

    def write(self, rows: Sequence[Row]) -> None:
        try:
            self._file.write(self._encode([_known(row) for row in rows] if self._sparse else rows))
            if time.monotonic_ns() >= self._flush_ns:
                self._file.flush()
                self._flush_ns = time.monotonic_ns() + _FLUSH_EVERY_NS
        except OSError as error:
            raise self._error(error) from None

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._error(error) from None

    def _error(self, error: OSError) -> WirecostError:
        fault = fault_of(error)
        if fault is not None:
            return StorageError(self._path, fault)
        return WirecostError(f"can't write '{self._path}': {error.strerror or error}")


def _known(row: Row) -> dict[str, object]:
    return {name: value for name in _NAMES if (value := getattr(row, name)) is not None}


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yields the rows of a file that JsonlWriter wrote. An incomplete last line after a crash is ignored.

    Raises:
        WirecostError: if the file can't be read or has another format.
    """
    import msgspec

    decode = msgspec.json.Decoder(Row).decode
    with open_file(Path(path)) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE_BYTES):
            number += 1
            try:
                yield decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE_BYTES:
                    return
                raise WirecostError(f"'{os.fspath(path)}' line {number} is not a sample: {error}") from None
