"""Bytes of a trace file, decompressed as they are read: never more than a chunk in memory."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from wirecost.decompression import GZIP, DamagedError, Expansion, decompress, is_compressed
from wirecost.errors import WirecostError
from wirecost.reading import open_file
from wirecost.trace.diagnostic_counts import DiagnosticCounts

CHUNK_BYTES = 1 << 17
_CAREFUL_BYTES = 1 << 12  # of compressed data: bounds the output of one step

SQLITE = b"SQLite format 3\0"
_HEAD_BYTES = 1 << 16

Progress = Callable[[int], None]


class TraceError(WirecostError):
    """A file that is no trace, or traces that can't belong together."""


class ForeignFile(TraceError):
    """A file of another tool, or of another kind: no broken trace but none at all."""


class NoDeviceEvents(TraceError):
    """Raised for a trace of the host only."""


def magic(path: Path) -> bytes:
    """Returns the first 64 KiB of a file. Raises TraceError if it can't be opened or is empty."""
    with open_file(path, pipes=False, error=TraceError) as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise TraceError(f"{path}: the file is empty; expected a profiler trace")
    return head


def chunks(path: Path, diagnostics: DiagnosticCounts, progress: Progress | None = None) -> Iterator[bytes]:
    """Yields the file's bytes in pieces of bounded size. They are decompressed according to the content, not the
    name.

    A damaged or cut-off compressed stream ends the iteration and is counted in `diagnostics`. Raises TraceError
    for a file that can't be a trace, and for a compressed file that becomes too large (`decompression.Expansion`).
    `progress` gets the number of bytes read from the file itself.
    """
    head = magic(path)
    with open_file(path, pipes=False, error=TraceError) as file:
        counted = _Counted(file, progress)
        if head.startswith(GZIP):
            yield from _gunzip(path, counted, diagnostics)
        elif is_compressed(head):
            yield from _other_compressed(path, counted, diagnostics)
        else:
            while chunk := counted.read(CHUNK_BYTES):
                yield chunk


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if self._progress is not None:
            self._progress(len(data))
        return data


def _gunzip(path: Path, file: _Counted, diagnostics: DiagnosticCounts) -> Iterator[bytes]:
    from isal import isal_zlib

    stream = isal_zlib.decompressobj(wbits=31)
    started, yielded = False, 0
    expansion = Expansion(str(path), TraceError)
    while data := file.read(CHUNK_BYTES):
        expansion.took(len(data))
        while data:
            started = True
            try:
                out = stream.decompress(data, CHUNK_BYTES)
            except isal_zlib.error as error:  # pyright: ignore[reportGeneralTypeIssues]
                diagnostics.add("compressed_data_broken", detail=str(error))
                yield from _up_to_damage(path, yielded)
                return
            if out:
                yielded += len(out)
                expansion.gave(len(out))
                yield out
            if stream.eof:
                # gzip files may be several members one after the other; zero padding may follow.
                data = stream.unused_data.lstrip(b"\0")
                stream, started = isal_zlib.decompressobj(wbits=31), bool(data)
            else:
                data = stream.unconsumed_tail
    while started and not stream.eof:
        # Output that the decompressor holds back until its input ends.
        try:
            out = stream.decompress(b"", CHUNK_BYTES)
        except isal_zlib.error:  # pyright: ignore[reportGeneralTypeIssues]
            out = b""
        if not out:
            diagnostics.add("compressed_data_broken", detail="the compressed file is cut off")
            return
        yield out


def _up_to_damage(path: Path, yielded: int) -> Iterator[bytes]:
    """Yields the content of a damaged gzip file before the damage, from the uncompressed byte `yielded` on.

    A failing decompressor loses output that it has not returned yet, so this one gets single bytes near the end.
    """
    stream = zlib.decompressobj(wbits=31)
    skip = yielded
    with open_file(path, pipes=False, error=TraceError) as file:
        while piece := file.read(_CAREFUL_BYTES):
            while piece:
                before = stream.copy()
                try:
                    out = stream.decompress(piece)
                except zlib.error:
                    with contextlib.suppress(zlib.error):
                        for byte in piece:
                            out = before.decompress(bytes((byte,)))
                            if out[skip:]:
                                yield out[skip:]
                            skip = max(0, skip - len(out))
                    return
                if out[skip:]:
                    yield out[skip:]
                skip = max(0, skip - len(out))
                piece = b""
                if stream.eof:
                    piece, stream = stream.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)


def _other_compressed(path: Path, file: _Counted, diagnostics: DiagnosticCounts) -> Iterator[bytes]:
    # All that decompressing needs is read().
    pieces = decompress(file.read(CHUNK_BYTES), cast(BinaryIO, file), str(path), TraceError)
    try:
        yield from pieces
    except DamagedError as damage:
        diagnostics.add("compressed_data_broken", detail=str(damage))
