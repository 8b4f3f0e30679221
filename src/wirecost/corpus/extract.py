"""Reads one part of a file and yields its documents as plain text."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wirecost import reading
from wirecost.corpus.blocks import blocks
from wirecost.corpus.records import Line, Losses, Piece, lines, own_lines, pages, paragraphs, stretch
from wirecost.corpus.sources import Kind, Packing, Source
from wirecost.corpus.wikitext import is_redirect, parts_of, plain_text
from wirecost.decompression import Expansion
from wirecost.errors import SpecError

_PIECE_BYTES = 256 << 10
_FILES, _CATEGORIES = 6, 14  # numbers of the namespaces in every wiki
_NAMESPACE = re.compile(rb'<namespace key="(-?\d+)"[^>]*>([^<]{1,200})<')
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML doesn't allow."""
_NUMBER = re.compile(rb"<ns>(-?\d{1,9})</ns>")
_HEAD_BYTES = 4096
_WIKITEXT_PART = 1 << 20
"""Characters. Longer pages are handled in parts, which bounds the memory that they take."""


@dataclass(frozen=True)
class Options:
    """What is read from the files.

    Attributes:
        namespaces: the namespaces of a dump whose pages are read; 0 are the articles.
        text_documents: what a document is in a text file: the `file`, the text between `blank-line`s, a `line`.
        text_key: key or column of the text in JSON lines and Parquet.
    """

    namespaces: tuple[int, ...] = (0,)
    text_documents: str = "file"
    text_key: str = "text"


@dataclass(frozen=True)
class Part:
    """A part of a file.

    Attributes:
        source: number of the file.
        start, end: bytes of the file, or of its text if it can be read from the start only.
        data: the text, if the reader has no access to it.
        texts: documents, if the file has been read already.
        consumed: number of bytes of the file that have been read at its end.
        last: whether it is the last part of its file.
        losses: what was lost on the way to a part with `data`.
    """

    source: int
    start: int
    end: int
    data: bytes | None = None
    texts: tuple[str, ...] | None = None
    consumed: int = 0
    last: bool = False
    losses: Losses | None = None


@dataclass(frozen=True)
class Document:
    """The text of a document, with a hash of its title if it has one."""

    text: str
    title_hash: int = 0


@dataclass
class Counts:
    """What was met in a part."""

    pages: int = 0
    redirects: int = 0
    other_namespaces: int = 0
    empty: int = 0
    unreadable: int = 0
    invalid_utf8: int = 0
    losses: Losses = field(default_factory=Losses)


def documents(
    source: Source,
    part: Part,
    options: Options,
    counts: Counts,
    *,
    skipped: Iterable[int] = (),
    on_record: Callable[[int], object] = lambda _: None,
) -> Iterator[Document]:
    """Yields the documents of a part.

    Args:
        counts: is increased while the part is read.
        skipped: numbers of the records that are left out because they couldn't be handled.
        on_record: called with the number of each record before it is handled.

    Raises:
        SpecError: if the file can't be read, or expands to too many bytes.
    """
    skip = frozenset(skipped)

    def numbered(records: Iterable[Any]) -> Iterator[Any]:
        for number, record in enumerate(records):
            on_record(number)
            if number in skip:
                counts.unreadable += 1
            else:
                yield record

    from_start = part.start == 0 or part.data is not None
    if part.texts is not None:
        yield from _as_documents(numbered(part.texts), counts)
    elif source.kind is Kind.WIKI:
        yield from _articles(
            numbered(pages(_pieces(source, part, counts), counts.losses)), source, options, counts
        )
    elif source.kind is Kind.TEXT and options.text_documents == "file":
        text = b"".join(stretch(_pieces(source, part, counts), from_start=from_start)).replace(b"\r\n", b"\n")
        yield from _as_documents(numbered([_decode(text, counts)]), counts)
    else:
        every = lines(_pieces(source, part, counts), counts.losses, from_start=from_start)
        yield from _as_documents(numbered(_line_texts(every, source, options, counts, from_start)), counts)


def _line_texts(
    every: Iterator[Line], source: Source, options: Options, counts: Counts, from_start: bool
) -> Iterator[str]:
    if source.kind is Kind.JSONL:
        for line in own_lines(every):
            if line is not None and line.strip():
                yield _json_text(line, options.text_key, counts)
    elif options.text_documents == "line":
        for line in own_lines(every):
            if line is not None:
                yield _decode(line, counts)
    else:
        for paragraph in paragraphs(every, from_start=from_start):
            yield _decode(paragraph, counts)


def _as_documents(texts: Iterable[str], counts: Counts) -> Iterator[Document]:
    for text in texts:
        if text.strip():
            yield Document(text)
        else:
            counts.empty += 1


def _decode(data: bytes, counts: Counts) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        counts.invalid_utf8 += 1
        return data.decode(errors="replace")


def _json_text(line: bytes, key: str, counts: Counts) -> str:
    """Returns the text of a JSON object. Its absence counts as unreadable, and is an empty document."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        # Python's parser also takes halves of surrogate pairs, which some programs write.
        try:
            value = json.loads(_decode(line, counts))
        except (ValueError, RecursionError):
            value = None
    text = value.get(key) if isinstance(value, dict) else None
    if not isinstance(text, str):
        counts.unreadable += 1
        return ""
    return text.encode(errors="replace").decode() if not text.isascii() else text


def _pieces(source: Source, part: Part, counts: Counts) -> Iterator[Piece]:
    """Yields the bytes of a part, and then those behind it, without a byte order mark."""
    first = part.start == 0
    for piece in _raw_pieces(source, part, counts):
        if first and piece.data is not None:
            yield Piece(piece.own, piece.data.removeprefix(codecs.BOM_UTF8))
        else:
            yield piece
        first = False


def _raw_pieces(source: Source, part: Part, counts: Counts) -> Iterator[Piece]:
    if part.data is not None:
        yield Piece(True, part.data)
        return
    with reading.open_file(source.path, pipes=False, error=SpecError) as file:
        os.lseek(file.fileno(), part.start, os.SEEK_SET)
        if source.packing is Packing.BZIP2:
            expansion = Expansion(str(source.path), SpecError)
            for block in blocks(file, part.start):
                own = block.start < part.end
                if own and block.data is None:
                    counts.losses.damage(block.start, block.size)
                counts.losses.cut_off |= own and block.last
                expansion.took(block.size)
                expansion.gave(len(block.data or b""))
                yield Piece(own, block.data)
            return
        left = part.end - part.start
        while data := file.read(min(_PIECE_BYTES, left) if left > 0 else _PIECE_BYTES):
            yield Piece(left > 0, data)
            left -= len(data)


def hidden_namespaces(source: Source) -> frozenset[str]:
    """Returns a wiki's own names for files and categories, in lower case."""
    names = _NAMESPACE.findall(source.header)
    wanted = [name for key, name in names if int(key) in (_FILES, _CATEGORIES)]
    return frozenset(name.decode(errors="replace").lower() for name in wanted)


def _articles(every: Iterable[bytes], source: Source, options: Options, counts: Counts) -> Iterator[Document]:
    hidden = hidden_namespaces(source)
    for data in every:
        counts.pages += 1
        # Most pages aren't articles, and parsing them would take longer than this look at their start.
        head = data[:_HEAD_BYTES].partition(b"<revision>")[0]
        number = _NUMBER.search(head)
        if number is not None and int(number[1]) not in options.namespaces:
            counts.other_namespaces += 1
            continue
        if b"<redirect " in head:
            counts.redirects += 1
            continue
        page = _Page.read(_decode(data, counts), source)
        if page is None:
            counts.unreadable += 1
        elif page.namespace not in options.namespaces:
            counts.other_namespaces += 1
        elif page.redirect or is_redirect(page.text):
            counts.redirects += 1
        else:
            text = "\n\n".join(
                filter(None, (plain_text(part, hidden) for part in parts_of(page.text, _WIKITEXT_PART)))
            )
            if not text:
                counts.empty += 1
                continue
            digest = hashlib.blake2b(f"{page.namespace}:{page.title}".encode(errors="replace"), digest_size=8)
            yield Document(f"{page.title}\n\n{text}", int.from_bytes(digest.digest(), "big") | 1)


@dataclass(frozen=True)
class _Page:
    title: str
    namespace: int
    redirect: bool
    text: str

    @classmethod
    def read(cls, xml: str, source: Source) -> _Page | None:
        """Returns a page with the text of its last revision; None if it isn't well formed or no wikitext."""
        for attempt in (xml, _CONTROL.sub(" ", xml)):
            try:
                return cls._parse(attempt, source)
            except Exception:  # noqa: BLE001, S112 - mwxml raises various errors for what it doesn't expect
                continue
        return None

    @classmethod
    def _parse(cls, xml: str, source: Source) -> _Page | None:
        import mwxml

        # Without <ns>, the title and the names of the namespaces tell the namespace.
        header = "<siteinfo></siteinfo>"
        if source.header and "<ns>" not in xml[:_HEAD_BYTES]:
            header = source.header.decode(errors="replace")
        file = io.BytesIO(f"<mediawiki>{header}{xml}</mediawiki>".encode(errors="replace"))
        for page in mwxml.Dump.from_file(file):
            text, model = "", None
            for revision in page:
                text, model = revision.text or "", revision.model
            if model not in (None, "wikitext"):
                return None
            return cls(str(page.title or ""), page.namespace or 0, page.redirect is not None, text)
        return None
