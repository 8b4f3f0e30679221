"""The files of a corpus: their kind, and the parts in which they are read."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wirecost import reading
from wirecost.corpus.blocks import blocks
from wirecost.decompression import BZIP2, HEAD_BYTES, DamagedError, decompress, is_compressed
from wirecost.errors import MissingExtraError, SpecError

HEAD_TEXT_BYTES = 1 << 20
"""Bytes at the start of a file that tell its kind. The header of a dump is shorter."""
_MOST_BLOCKS = 100
_PARQUET = b"PAR1"
_REFUSED = {
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"PK\x03\x04": "a ZIP archive",
    b"ARROW1": "an Arrow file; write it as Parquet",
    b"SQLite format 3": "a database",
    b"%PDF": "a PDF",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LEAST_CHUNK_BYTES, _MOST_CHUNK_BYTES = 512 << 10, 2 << 20
_CHUNKS = 32
"""Least number of parts of a file that is large enough."""


class Kind(StrEnum):
    """What a file contains."""

    WIKI = "MediaWiki dump"
    JSONL = "JSON lines"
    PARQUET = "Parquet"
    TEXT = "text"


class Packing(StrEnum):
    """How a file is compressed."""

    NONE = "none"
    BZIP2 = "bzip2"
    OTHER = "other"  # gzip, zstd or xz, which can only be read from the start


@dataclass(frozen=True)
class Source:
    """One file.

    Attributes:
        size: its size in bytes.
        header: of a dump, the element <siteinfo>; empty if the dump has none.
    """

    path: Path
    kind: Kind
    packing: Packing
    size: int
    header: bytes = b""

    @property
    def chunk_bytes(self) -> int:
        """Number of bytes of the file that are read as one part."""
        # A block of bzip2 is about 250 kB, and the first one behind a part is often needed too.
        return min(max(self.size // _CHUNKS, _LEAST_CHUNK_BYTES), _MOST_CHUNK_BYTES)

    @property
    def seekable(self) -> bool:
        """Whether reading can begin anywhere in the file."""
        return self.packing is not Packing.OTHER and self.kind is not Kind.PARQUET


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Returns the files that a corpus is made from, in the order of `paths`. The files of a folder are sorted by
    name; hidden ones and those of its subfolders are left out.

    Raises:
        SpecError: if a file is missing, unreadable, empty or of another kind.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise SpecError(f"{path}: this folder contains no files")
            files += inside
        else:
            files.append(path)
    twice = {p for p in files if files.count(p) > 1} if len(files) < 10_000 else set()
    if twice:
        raise SpecError(f"{min(twice)}: is named twice")
    return [inspect(path) for path in files]


def check_installed(sources: Sequence[Source]) -> None:
    """Raises MissingExtraError if a library is missing that reads one of the files."""
    kinds = {source.kind for source in sources}
    for kind, packages in ((Kind.WIKI, ("mwxml", "mwparserfromhell")), (Kind.PARQUET, ("pyarrow",))):
        if kind in kinds and any(importlib.util.find_spec(package) is None for package in packages):
            raise MissingExtraError(f"reading a {kind}" if kind is Kind.WIKI else "reading Parquet", "data")


def inspect(path: Path) -> Source:
    """Returns a file with its kind, which the first bytes tell.

    Raises:
        SpecError: see `find_sources`.
    """
    with reading.open_file(path, pipes=False, error=SpecError) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(max(HEAD_BYTES, 16))
        if not head:
            raise SpecError(f"{path}: is empty")
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                raise SpecError(f"{path}: is {what}; expected a Wikipedia dump, text, JSON lines or Parquet")
        if head.startswith(_PARQUET):
            return Source(path, Kind.PARQUET, Packing.NONE, size)
        packing = Packing.NONE
        if is_compressed(head):
            packing = Packing.BZIP2 if head.startswith(BZIP2) else Packing.OTHER
            packed = (
                _whole_blocks(path) if packing is Packing.BZIP2 else decompress(head, file, str(path), SpecError)
            )
            start = _first_text(packed)
            if not start:
                raise SpecError(f"{path}: nothing can be decompressed from it")
        else:
            start = head + file.read(HEAD_TEXT_BYTES)
    kind, header = _kind_of(path, start.removeprefix(b"\xef\xbb\xbf"))
    return Source(path, kind, packing, size, header)


def _whole_blocks(path: Path) -> Iterator[bytes]:
    """Yields the text of a bzip2 file without its damaged blocks."""
    with reading.open_file(path, pipes=False, error=SpecError) as file:
        yield from (
            block.data for block, _ in zip(blocks(file, 0), range(_MOST_BLOCKS), strict=False) if block.data
        )


def _first_text(pieces: Iterator[bytes]) -> bytes:
    start = b""
    try:
        for piece in pieces:
            start += piece
            if len(start) >= HEAD_TEXT_BYTES:
                break
    except DamagedError:
        pass  # the damage is reported when the file is read
    return start


def _kind_of(path: Path, start: bytes) -> tuple[Kind, bytes]:
    """Returns the kind of a file and a dump's header, from its first bytes of text."""
    if start.startswith((*_UTF16, b"<\0", b"\0<")):
        raise SpecError(f"{path}: is UTF-16 text; write it as UTF-8 first (iconv -f UTF-16 -t UTF-8)")
    if start.startswith(_PARQUET):
        raise SpecError(f"{path}: is compressed Parquet; decompress it first")
    if b"\0" in start:
        raise SpecError(f"{path}: is binary; expected a Wikipedia dump, text, JSON lines or Parquet")
    text = start.lstrip()
    if text.startswith(b"<") and (b"<mediawiki" in text[:4096] or b"<page>" in text[:4096]):
        begin, end = text.find(b"<siteinfo>"), text.find(b"</siteinfo>")
        return Kind.WIKI, text[begin : end + len(b"</siteinfo>")] if 0 <= begin < end else b""
    if text.startswith(b"<?xml"):
        raise SpecError(f"{path}: is XML, but no MediaWiki dump: it has no <mediawiki> element at its start")
    if text.startswith(b"{"):
        return Kind.JSONL, b""
    if text.startswith(b"["):
        first = text[1:].lstrip()[:1]
        if first == b"{":
            raise SpecError(f"{path}: is one JSON array; write one object on each line (jq -c '.[]' FILE)")
    if not text and len(start) < HEAD_TEXT_BYTES:
        raise SpecError(f"{path}: contains no text")
    return Kind.TEXT, b""
