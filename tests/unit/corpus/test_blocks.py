from __future__ import annotations

import bz2
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus import blocks as module
from wirecost.corpus.blocks import Block, blocks


def text(size: int, seed: int = 0) -> bytes:
    """Returns text that bzip2 compresses to about a half."""
    return bytes(random.Random(seed).choices(b"abcdefghijklmnop \n", k=size))


def read(data: bytes, start: int = 0) -> list[Block]:
    file = io.BytesIO(data)
    file.seek(start)
    return list(blocks(file, start))


def parts(data: bytes, size: int) -> list[Block]:
    """Reads a file in parts, each with the blocks that begin in it."""
    return [b for start in range(0, len(data), size) for b in read(data, start) if b.start < start + size]


@given(
    streams=st.lists(st.tuples(st.integers(0, 250_000), st.integers(1, 9)), min_size=1, max_size=4),
    part=st.integers(2_000, 120_000),
)
def test_parts_of_a_file_together_give_its_text(streams: list[tuple[int, int]], part: int) -> None:
    texts = [text(size, seed) for seed, (size, _) in enumerate(streams)]
    data = b"".join(bz2.compress(t, level) for t, (_, level) in zip(texts, streams, strict=True))
    found = parts(data, part)
    assert b"".join(b.data or b"?" for b in found) == b"".join(texts)
    assert not any(b.last for b in found)


@pytest.mark.parametrize("multistream", [False, True])
def test_a_damaged_block_costs_only_itself(multistream: bool) -> None:
    texts = [text(100_000, seed) for seed in range(5)]
    data = bytearray(
        b"".join(bz2.compress(t, 1) for t in texts) if multistream else bz2.compress(b"".join(texts), 1)
    )
    whole = read(bytes(data))
    assert len(whole) >= 5
    hit = whole[2]
    data[hit.start + hit.size // 2] ^= 0xFF
    after = read(bytes(data))
    assert [b.data for b in after if b.data is not None] == [b.data for b in whole if b is not hit]
    (damaged,) = [b for b in after if b.data is None]
    assert damaged.start == hit.start
    assert not damaged.last


@pytest.mark.parametrize("left", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_keeps_whole_blocks_and_says_so(left: float) -> None:
    data = bz2.compress(text(450_000), 1)
    whole = read(data)
    cut = read(data[: int(left * len(data))])
    kept = [b for b in cut if b.data is not None]
    assert [b.data for b in kept] == [b.data for b in whole[: len(kept)]]
    assert cut[-1].last
    assert len(kept) >= int(left * len(whole)) - 1


def test_a_magic_number_by_chance_inside_a_block_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bz2.compress(text(50_000), 1)
    real = module._marks

    def with_another(read: bytes, first: int) -> list[tuple[int, bool]]:
        marks = real(read, first)
        return [marks[0], (marks[0][0] + 4001, True), *marks[1:]] if marks else marks

    monkeypatch.setattr(module, "_marks", with_another)
    (block,) = read(data)
    assert block.data == text(50_000)


@given(st.binary(max_size=3000))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    found = read(b"BZh9" + (0x314159265359).to_bytes(6, "big") + data)
    assert found
    assert not any(b.data for b in found)


def test_a_bomb_stays_small_for_each_block() -> None:
    data = bz2.compress(bytes(200 << 20))
    largest = 0
    for block in blocks(io.BytesIO(data), 0):
        assert block.data is not None
        largest = max(largest, len(block.data))
    assert largest < 48 << 20
