"""Reads logs from files, directories and standard input, plain or compressed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from wirecost.decompression import HEAD_BYTES, DamagedError, decompress, is_compressed
from wirecost.errors import WirecostError
from wirecost.ncclog.reader import LogReader
from wirecost.ncclog.result import Verdict
from wirecost.ncclog.wrapping import is_text
from wirecost.reading import open_file, standard_input
from wirecost.text import encodable, printable

_CHUNK_BYTES = 1 << 20


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> Verdict:
    """Reads logs and returns the verdict on the transport that their job used.

    Logs of many ranks count as one job's. Memory and the size of decompressed data are bounded. A log without
    information gives the verdict `unknown` with a reason.

    Args:
        paths: files and pipes (plain, gzip, zstd, xz or bzip2, recognised by content), directories (all text files
            in them, at any depth), or "-" for standard input.

    Raises:
        WirecostError: if a path can't be read.
    """
    reader = LogReader()
    path_texts = [os.fspath(p) for p in paths]
    if not path_texts:
        raise WirecostError("no log given: name files or directories, or '-' for standard input")
    for path in path_texts:
        if path == "-":
            _pump(reader, standard_input(), "standard input")
        elif Path(path).is_dir():
            for file in _files(Path(path)):
                _read_file(reader, file, in_directory=True)
        else:
            _read_file(reader, Path(path), in_directory=False)
    return reader.verdict()


def read_text(log: str | bytes) -> Verdict:
    """Returns the verdict on a log that is already in memory."""
    reader = LogReader()
    reader.feed(log.encode("utf-8", "surrogateescape") if isinstance(log, str) else log)
    return reader.verdict()


def _files(directory: Path) -> list[Path]:
    def refuse(failure: OSError) -> None:
        # os.walk silently skips unreadable directories, and with them the logs of whole hosts.
        raise WirecostError(f"{encodable(str(failure.filename))}: can't be read: {failure.strerror}") from failure

    paths = []
    for root, folders, names in os.walk(directory, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            # An empty file contains nothing. The kernel's files report size 0 and may be endless.
            status = path.stat() if path.exists() else None
            if status is not None and stat.S_ISREG(status.st_mode) and status.st_size > 0:
                paths.append(path)
    return paths


def _read_file(reader: LogReader, path: Path, *, in_directory: bool) -> None:
    if not in_directory and not path.exists():
        raise WirecostError(f"can't read log '{path}': No such file or directory")
    with open_file(path, skip_holes=True) as file:
        _pump(reader, file, str(path), skip_binary=in_directory)


def _pump(reader: LogReader, stream: BinaryIO, name: str, *, skip_binary: bool = False) -> None:
    try:
        _feed(reader, stream, name, skip_binary)
    except OSError as failure:
        raise WirecostError(f"{name}: can't be read: {failure.strerror}") from failure
    reader.end_source()


def _feed(reader: LogReader, stream: BinaryIO, name: str, skip_binary: bool) -> None:
    head = stream.read(HEAD_BYTES)
    chunks = decompress(head, stream, name) if is_compressed(head) else _plain(head, stream)
    try:
        for number, chunk in enumerate(chunks):
            if number == 0 and skip_binary and not is_text(chunk[:65536]):
                reader.skipped.append(printable(encodable(name)))
                break
            reader.feed(chunk)
    except DamagedError:
        reader.unreadable.append(printable(encodable(name)))


def _plain(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while data := head + stream.read(_CHUNK_BYTES):
        head = b""
        yield data
