"""Reads bzip2 files block by block from any position, so that several processes can share one file.

A bzip2 file is a sequence of streams, and a stream a sequence of blocks of at most 900 kB of text. A block begins
with a magic number at any bit. A block with a header before it and an end behind it is a stream of its own. (The
program bzip2recover works in this way.) It makes no difference whether a file has one stream or many, and no index
file is needed. A damaged block costs only its own text.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_BLOCK = 0x314159265359
_END = 0x177245385090
_MAGIC_BITS = 48
_PIECE_BYTES = 1 << 20
_MOST_COMPRESSED = 2 << 20
"""Bytes. A block of 900 kB that can't be compressed takes little more than these 900 kB."""
_LEAST_COMPRESSED = 16
"""Bytes. A shorter block has no room for its tables."""
_MOST_TEXT = 48 << 20
"""Bytes. A block of 900 kB, whose runs are encoded in 5 bytes for 259, has at most 46.6 MB of text."""


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        start: the byte of the file in which it begins.
        size: number of compressed bytes.
        data: its text; None if the block is damaged or incomplete.
        last: whether the file ends with it, without the end of a stream: the file was cut off.
    """

    start: int
    size: int
    data: bytes | None
    last: bool = False


def blocks(file: BinaryIO, start: int) -> Iterator[Block]:
    """Yields the blocks that begin at or behind the byte `start` of a file, which is the next one to be read."""
    base, data = start, b""
    begun: list[int] = []
    """Bits of `data` at which a block begins whose end wasn't found; two if the first was damaged or its end was
    mistaken."""
    searched = 0
    while True:
        more = file.read(_PIECE_BYTES)
        data += more
        for bit, is_block in _marks(data, searched):
            yield from _finished(data, base, begun, bit)
            if is_block:
                begun.append(bit)
            else:
                yield from _lost(base, begun, bit)
                begun.clear()
        if not more:
            if begun:
                size = len(data) - begun[0] // 8
                yield Block(base + begun[0] // 8, size, None, last=True)
            return
        if begun and len(data) - begun[0] // 8 > _MOST_COMPRESSED + _PIECE_BYTES:
            yield from _lost(base, begun, len(data) * 8)
            begun.clear()
        # A magic number may lie across the end of what was read.
        tail = max(0, len(data) - _MAGIC_BITS // 8)
        dropped = min(begun[0] // 8, tail) if begun else tail
        base, data = base + dropped, data[dropped:]
        begun = [bit - 8 * dropped for bit in begun]
        searched = 8 * (tail - dropped)


def _finished(data: bytes, base: int, begun: list[int], end: int) -> Iterator[Block]:
    """Yields the blocks that end at bit `end`, and removes them from `begun`."""
    for start in reversed(begun):
        text = decompress_block(data, start, end)
        if text is not None:
            if start != begun[0]:
                yield from _lost(base, begun[:1], start)
            # If it is the first of two, the second magic number was by chance a part of the block.
            yield Block(base + start // 8, (end - start) // 8, text)
            begun.clear()
            return
    if len(begun) == 2:
        yield from _lost(base, begun[:1], begun[1])
        del begun[0]


def _lost(base: int, begun: list[int], end: int) -> Iterator[Block]:
    for start, stop in zip(begun, [*begun[1:], end], strict=False):
        yield Block(base + start // 8, (stop - start) // 8, None)


def _marks(data: bytes, first: int) -> list[tuple[int, bool]]:
    """Returns the bits from `first` on at which magic numbers begin, each with whether it is a block's."""
    found: list[tuple[int, bool]] = []
    for magic in (_BLOCK, _END):
        for shift in range(8):
            found += ((bit, magic == _BLOCK) for bit in _shifted(data, magic, shift) if bit >= first)
    return sorted(found)


def _shifted(data: bytes, magic: int, shift: int) -> Iterator[int]:
    """Yields the bits at which a magic number begins `shift` bits behind the start of a byte."""
    padded = (magic << (8 - shift)).to_bytes(7, "big")
    # Bytes that the magic number fills, whatever the bits around it are.
    skipped, inner = (1, padded[1:6]) if shift else (0, padded[:6])
    first_mask, last_mask = (1 << (8 - shift)) - 1, 0xFF << (8 - shift) & 0xFF
    at = data.find(inner, skipped)
    while at >= 0:
        if shift == 0:
            yield 8 * at
        elif at + 5 < len(data) and (data[at - 1] & first_mask, data[at + 5] & last_mask) == (
            padded[0],
            padded[6],
        ):
            yield 8 * (at - 1) + shift
        at = data.find(inner, at + 1)


def decompress_block(data: bytes, start: int, end: int) -> bytes | None:
    """Returns the text of the block between two bits; None if it is damaged."""
    if end - start < 8 * _LEAST_COMPRESSED:
        return None
    last = -(-end // 8)
    bits = int.from_bytes(data[start // 8 : last], "big") >> (8 * last - end)
    count = end - start
    bits &= (1 << count) - 1
    checksum = (bits >> (count - _MAGIC_BITS - 32)) & 0xFFFFFFFF
    # The checksum of a stream of one block is that of the block.
    bits = (bits << _MAGIC_BITS | _END) << 32 | checksum
    count += _MAGIC_BITS + 32
    padding = -count % 8
    stream = b"BZh9" + (bits << padding).to_bytes((count + padding) // 8, "big")
    decompressor = bz2.BZ2Decompressor()
    try:
        text = decompressor.decompress(stream, _MOST_TEXT)
    except (OSError, ValueError, EOFError):
        return None
    return text if decompressor.eof else None
