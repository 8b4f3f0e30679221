"""Where logs come from: files, directories, standard input, plain or compressed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from wirecost.errors import WirecostError
from wirecost.ncclog.reader import LogReader
from wirecost.ncclog.result import Verdict

_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> Verdict:
    """Reads logs and says which transport their job used.

    `paths`: files (plain, gzip or zstd, told by content), directories (all text files in them, at any depth), or
    "-" for standard input. Logs of many ranks are one job's. Memory stays bounded whatever their size.
    Raises WirecostError where a path can't be read; a log that says nothing gives verdict `unknown` and a reason.
    """
    reader = LogReader()
    given = [os.fspath(p) for p in paths]
    if not given:
        raise WirecostError("no log given: name files or directories, or '-' for standard input")
    for path in given:
        if path == "-":
            _pump(reader, cast(BinaryIO, sys.stdin.buffer), "standard input")
        elif Path(path).is_dir():
            for file in _files(Path(path)):
                _read_file(reader, file, in_directory=True)
        else:
            _read_file(reader, Path(path), in_directory=False)
    return reader.verdict()


def read_text(log: str | bytes) -> Verdict:
    """The verdict on a log that is already in memory."""
    reader = LogReader()
    reader.feed(log.encode("utf-8", "surrogateescape") if isinstance(log, str) else log)
    return reader.verdict()


def _files(directory: Path) -> list[Path]:
    found = []
    for root, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            if stat.S_ISREG(path.stat(follow_symlinks=True).st_mode if path.exists() else 0):
                found.append(path)
    return found


def _read_file(reader: LogReader, path: Path, *, in_directory: bool) -> None:
    try:
        with path.open("rb") as file:
            _pump(reader, cast(BinaryIO, file), str(path), skip_binary=in_directory)
    except OSError as error:
        raise WirecostError(f"can't read log '{path}': {error.strerror or error}") from None


def _pump(reader: LogReader, stream: BinaryIO, name: str, *, skip_binary: bool = False) -> None:
    head = stream.read(len(_ZSTD_MAGIC))
    if head.startswith(_GZIP_MAGIC):
        chunks = _gunzip(head, stream)
    elif head == _ZSTD_MAGIC:
        chunks = _unzstd(head, stream)
    else:
        chunks = _plain(head, stream)
    try:
        for number, chunk in enumerate(chunks):
            if number == 0 and skip_binary and b"\0" in chunk[:65536]:
                reader.skipped.append(name)
                break
            reader.feed(chunk)
    except _CutError:
        reader.unreadable.append(name)
    reader.end_source()


class _CutError(Exception):
    """A compressed source ends early or is damaged; everything before it has been handed over."""


def _plain(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while data := head + stream.read(_CHUNK_BYTES):
        head = b""
        yield data


def _gunzip(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """The members of a gzip stream, one after the other."""
    from isal import isal_zlib

    member = isal_zlib.decompressobj(wbits=31)  # 15 bits of window, and 16: a gzip header
    pending = head
    try:
        while data := pending or stream.read(_CHUNK_BYTES // 4):
            if member.eof:
                if not data.startswith(_GZIP_MAGIC):
                    return  # padding after the last member
                member = isal_zlib.decompressobj(wbits=31)
            # Bounded, so that a tiny file can't ask for gigabytes at once.
            if text := member.decompress(data, _CHUNK_BYTES * 4):
                yield text
            pending = member.unused_data if member.eof else member.unconsumed_tail
    except isal_zlib.error:  # pyright: ignore[reportGeneralTypeIssues] (typed as an instance)
        raise _CutError from None
    if not member.eof:
        raise _CutError


def _unzstd(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    import zstandard

    def fresh() -> zstandard.ZstdDecompressionObj:
        return zstandard.ZstdDecompressor().decompressobj()

    frame, pending = fresh(), head
    try:
        while data := pending or stream.read(_CHUNK_BYTES // 4):
            if frame.eof:
                frame = fresh()
            if text := frame.decompress(data):
                yield text
            pending = frame.unused_data if frame.eof else b""
    except zstandard.ZstdError:
        raise _CutError from None
    if not frame.eof:
        raise _CutError
