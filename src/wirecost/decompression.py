"""Decompresses gzip, zstd, xz and bzip2 streams in bounded memory, whatever a hostile stream asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from wirecost.errors import WirecostError

CHUNK_BYTES = 1 << 20
GZIP, ZSTD, XZ, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh"
HEAD_BYTES = 6
"""Number of leading bytes of a stream that identify its format."""
MOST_EXPANSION = 1000
FREE_BYTES = 256 << 20
"""A stream may decompress to this many bytes or to `MOST_EXPANSION` times its compressed size, whichever is more.
DEFLATE can't exceed a factor of 1032; NCCL logs of whole jobs stay below 200 with xz and zstd at their highest
levels.
"""
_MOST_WINDOW_BYTES = 1 << 27
"""Most memory that a stream may request for its decompression: zstd's own limit for `--long=27`; xz -9 takes half.
"""
_SKIPPABLE = b"\x2a\x4d\x18"
"""Bytes 2 to 4 of a frame that zstd skips (RFC 8878, 3.1.2)."""
_LEAST_PIECE_BYTES = 1 << 18
_ZSTD_STEP_BYTES = 1 << 11
"""Number of compressed bytes that are decompressed at once. A block of 4 bytes can become 128 KiB, so a step can
become 64 MiB.
"""


class DamagedError(Exception):
    """Raised when a compressed stream is truncated or damaged, after everything before the damage was yielded."""


class Expansion:
    """Refuses a stream that decompresses to too many bytes for its size (`MOST_EXPANSION`, `FREE_BYTES`).

    Args:
        name: the stream's name in the error.
        error: the class of the error.
    """

    def __init__(self, name: str, error: type[WirecostError] = WirecostError) -> None:
        self._name, self._error = name, error
        self._taken = self._given = 0

    def took(self, count: int) -> None:
        """Counts compressed bytes."""
        self._taken += count

    def gave(self, count: int) -> None:
        """Counts decompressed bytes. Raises the error if they are too many."""
        self._given += count
        if self._given > max(FREE_BYTES, MOST_EXPANSION * self._taken):
            raise self._error(
                f"{self._name}: {self._taken} compressed bytes become more than {self._given >> 20} MiB, over "
                f"{MOST_EXPANSION} times as much: refused; if it really is sound, decompress it first"
            )


def is_compressed(head: bytes) -> bool:
    """Returns whether a stream that starts with `head` is in one of the formats."""
    return head.startswith((GZIP, ZSTD, XZ, BZIP2))


def decompress(
    head: bytes, stream: BinaryIO, name: str, error: type[WirecostError] = WirecostError
) -> Iterator[bytes]:
    """Yields the decompressed bytes of a stream in pieces of bounded size. `head` holds the bytes that were
    already read from it: at least `HEAD_BYTES`, unless the stream is shorter.

    Members and frames that follow each other count as one stream; padding behind the last one is left out.

    Raises:
        DamagedError: when the damage is reached.
        error: for a stream that becomes too large, see `Expansion`.
    """
    expansion = Expansion(name, error)
    gathered: list[bytes] = []
    size = 0
    try:
        for piece in _pieces(head, stream, expansion):
            gathered.append(piece)
            size += len(piece)
            if size >= _LEAST_PIECE_BYTES:
                yield b"".join(gathered)
                gathered.clear()
                size = 0
    except DamagedError:
        yield b"".join(gathered)
        raise
    if gathered:
        yield b"".join(gathered)


def _pieces(head: bytes, stream: BinaryIO, expansion: Expansion) -> Iterator[bytes]:
    magic = next(m for m in _FORMATS if head.startswith(m))
    fresh, step_bytes = _FORMATS[magic]
    pending, member = head, fresh()
    expansion.took(len(head))
    while True:
        if not pending:
            pending = stream.read(step_bytes)
            expansion.took(len(pending))
            if not pending:
                break
        if member.ended:
            if len(pending) < len(magic):
                more = stream.read(len(magic))
                expansion.took(len(more))
                pending += more
            if not pending.startswith(magic) and not (magic == ZSTD and pending[1:4] == _SKIPPABLE):
                return
            member = fresh()
        for start in range(0, len(pending), step_bytes):
            for piece in member.feed(pending[start : start + step_bytes]):
                expansion.gave(len(piece))
                yield piece
            if member.ended:
                pending = member.unused + pending[start + step_bytes :]
                break
        else:
            pending = b""
    if not member.ended:
        raise DamagedError("the compressed data is cut off")


class _Member(Protocol):
    """Decompresses one member of a stream."""

    ended: bool
    unused: bytes
    """Bytes that were fed beyond the member's end."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the decompressed `data` in pieces of bounded size. Raises DamagedError."""
        ...


class _Decompressor:
    """One member of a compressed file. `ended` is whether its end was reached, `unused` what follows it."""

    def __init__(self, stream: Any, *errors: Any) -> None:
        self._stream, self._errors = stream, errors
        self.ended, self.unused = False, b""

    def _pieces(self, data: bytes, *most_bytes: int) -> Iterator[bytes]:
        """Yields what `data` is decompressed to, unless it is empty. Raises DamagedError."""
        try:
            piece = self._stream.decompress(data, *most_bytes)
        except self._errors as failure:
            raise DamagedError(str(failure)) from failure
        if piece:
            yield piece
        if self._stream.eof:
            self.ended, self.unused = True, self._stream.unused_data


class _Gzip(_Decompressor):
    def __init__(self) -> None:
        from isal import isal_zlib

        stream = isal_zlib.decompressobj(wbits=31)  # 15 bits of window, and 16 for a gzip header
        super().__init__(stream, isal_zlib.error)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self.ended:
            yield from self._pieces(data, CHUNK_BYTES)
            data = self._stream.unconsumed_tail


class _Zstd(_Decompressor):
    def __init__(self) -> None:
        import zstandard

        stream = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES).decompressobj()
        super().__init__(stream, zstandard.ZstdError)

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield from self._pieces(data)


class _Standard(_Decompressor):
    """Decompresses xz and bzip2, whose decompressors in the standard library have the same interface."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield from self._pieces(data, CHUNK_BYTES)
        while not (self.ended or self._stream.needs_input):
            yield from self._pieces(b"", CHUNK_BYTES)


def _xz() -> _Member:
    import lzma

    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 * _MOST_WINDOW_BYTES)
    return _Standard(stream, lzma.LZMAError, EOFError)


def _bzip2() -> _Member:
    import bz2

    return _Standard(bz2.BZ2Decompressor(), OSError, ValueError, EOFError)


_FORMATS: dict[bytes, tuple[Callable[[], _Member], int]] = {
    GZIP: (_Gzip, CHUNK_BYTES // 4),
    ZSTD: (_Zstd, _ZSTD_STEP_BYTES),
    XZ: (_xz, CHUNK_BYTES // 4),
    BZIP2: (_bzip2, CHUNK_BYTES // 4),
}
