"""Finds the records of a file: the pages of a dump, or the lines of a text.

Several processes read one file, each a part of it. A page belongs to the part in which its <page> begins, and a
line to the part with the end of the line before it. A process reads on behind its part until its last record is
complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MOST_RECORD_BYTES = 32 << 20
"""Longer pages and lines are left out. Wikipedia's longest pages have 2 MB."""
_CUT_BYTES = 64 << 10
_PAGE, _PAGE_END = b"<page>", b"</page>"


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of a file.

    Attributes:
        own: whether they belong to the part that is read.
        data: None for bytes that are damaged.
    """

    own: bool
    data: bytes | None


@dataclass
class Losses:
    """What was left out because it couldn't be read.

    Attributes:
        bytes: number of bytes of damaged blocks.
        blocks: number of damaged blocks.
        records: number of records that were cut off by damage or by the end of the file.
        too_long: number of records that are longer than `MOST_RECORD_BYTES`.
        cut_off: whether the file ends too early.
        places: bytes of the file at which damage begins. Only the first ones are kept.
    """

    bytes: int = 0
    blocks: int = 0
    records: int = 0
    too_long: int = 0
    cut_off: bool = False
    places: list[int] = field(default_factory=list)

    def damage(self, place: int, size: int) -> None:
        """Counts a damaged block."""
        self.blocks += 1
        self.bytes += size
        if len(self.places) < 10:
            self.places.append(place)


def pages(pieces: Iterable[Piece], losses: Losses) -> Iterator[bytes]:
    """Yields the <page> elements that begin in own pieces."""
    buffer = bytearray()
    own = 0  # pages that begin before this byte of the buffer are yielded
    begin = -1  # where the page begins that isn't complete
    searched = 0
    skipping = False  # whether the end of a page that is too long is searched
    for piece in pieces:
        if piece.data is None:
            losses.records += begin >= 0
            buffer.clear()
            own, begin, searched, skipping = 0, -1, 0, False
            continue
        if not piece.own and begin < 0 and not _may_begin(buffer, searched, own):
            return
        buffer += piece.data
        if piece.own:
            own = len(buffer)
        while True:
            if begin < 0:
                begin = buffer.find(_PAGE, searched, min(own + len(_PAGE) - 1, len(buffer)))
                if begin < 0:
                    searched = max(searched, min(own, len(buffer) - len(_PAGE) + 1))
                    break
                searched = begin
            end = buffer.find(_PAGE_END, searched)
            if end < 0:
                searched = max(begin, len(buffer) - len(_PAGE_END) + 1)
                break
            end += len(_PAGE_END)
            if not skipping:
                yield bytes(buffer[begin:end])
            begin, searched, skipping = -1, end, False
        if begin >= 0 and searched - begin > MOST_RECORD_BYTES:
            losses.too_long += not skipping
            skipping = True
        kept = searched if begin < 0 or skipping else begin
        if kept > len(buffer) // 2:
            del buffer[:kept]
            own, searched = max(0, own - kept), searched - kept
            begin = -1 if begin < 0 else 0
    losses.records += begin >= 0 and not skipping


def _may_begin(buffer: bytearray, searched: int, own: int) -> bool:
    """Returns whether a page may begin with the last own bytes."""
    tail = bytes(buffer[searched:own])
    return any(tail.endswith(_PAGE[:count]) for count in range(1, len(_PAGE)))


@dataclass(frozen=True)
class Line:
    """A line without its end.

    Attributes:
        own: whether it belongs to the part that is read.
        text: None for a line that is too long or damaged.
    """

    own: bool
    text: bytes | None


def lines(pieces: Iterable[Piece], losses: Losses, *, from_start: bool) -> Iterator[Line]:
    """Yields lines, also those behind the own part, until the caller has enough.

    Args:
        from_start: whether the first byte begins a line.
    """
    parts: list[bytes] = []
    length = 0
    own, inside, complete = True, from_start, True
    for piece in pieces:
        if piece.data is None:
            losses.records += inside and bool(parts)
            parts.clear()
            length, inside, complete, own = 0, False, True, piece.own
            continue
        if not (inside or piece.own):
            return
        *ended, rest = piece.data.split(b"\n")
        for text in ended:
            if inside:
                yield Line(own, b"".join([*parts, text]).removesuffix(b"\r") if complete else None)
            parts.clear()
            length, inside, complete, own = 0, True, True, piece.own
        length += len(rest)
        if length > MOST_RECORD_BYTES:
            losses.too_long += complete and inside and own
            complete = False
            parts.clear()
        elif rest:
            parts.append(rest)
    if inside and (parts or not complete):
        yield Line(own, b"".join(parts).removesuffix(b"\r") if complete else None)


def own_lines(every: Iterable[Line]) -> Iterator[bytes | None]:
    """Yields the text of the own lines."""
    for line in every:
        if not line.own:
            return
        yield line.text


def paragraphs(every: Iterable[Line], *, from_start: bool) -> Iterator[bytes]:
    """Yields texts between blank lines. A text belongs to the part that owns the blank line before it."""
    text: list[bytes] = []
    size = 0
    begins = from_start
    for line in every:
        if line.text is None or not line.text.strip():
            if text:
                yield b"\n".join(text)
            text, size = [], 0
            begins = line.text is not None and line.own
            if not line.own:
                return
        elif text or begins:
            # A longer text is cut: it becomes several documents.
            if size > MOST_RECORD_BYTES:
                yield b"\n".join(text)
                text, size = [], 0
            text.append(line.text)
            size += len(line.text)
        elif not line.own:
            return
    if text:
        yield b"\n".join(text)


def stretch(pieces: Iterable[Piece], *, from_start: bool) -> Iterator[bytes]:
    """Yields the text of a part that needn't end with a record: from the first end of a line or word in it to the
    first one behind it.

    Args:
        from_start: whether the part is the first one of its file.
    """
    inside = from_start
    for piece in pieces:
        if piece.data is None:
            inside = True
        elif not piece.own:
            if inside:
                yield piece.data[: _cut(piece.data)]
            return
        else:
            yield piece.data if inside else piece.data[_cut(piece.data) :]
            inside = True


def _cut(data: bytes) -> int:
    """Returns where the text before `data` ends, which both parts that meet there must find alike."""
    head = data[:_CUT_BYTES]
    for end in (b"\n", b" "):
        at = head.find(end)
        if at >= 0:
            return at + 1
    at = 0
    while at < min(len(head), 3) and head[at] & 0xC0 == 0x80:  # the rest of a character in UTF-8
        at += 1
    return at
