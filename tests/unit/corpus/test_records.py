from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus import records
from wirecost.corpus.records import Losses, Piece, lines, own_lines, pages, paragraphs, stretch

XML = st.lists(
    st.sampled_from([b"<page>", b"</page>", b"<page", b">", b"text ", b"<pag", b"\n", b"a<b"]), max_size=30
).map(b"".join)
LINES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b" ", b"\r\n", "ü".encode()]), max_size=40).map(
    b"".join
)


def pieces(data: bytes, start: int, end: int, size: int) -> Iterator[Piece]:
    """Yields the bytes from `start` on, of which those before `end` are own."""
    while start < len(data):
        stop = min(end, start + size) if start < end else start + size
        yield Piece(start < end, data[start:stop])
        start = stop


def whole_pages(data: bytes) -> list[bytes]:
    found, at = [], 0
    while (begin := data.find(b"<page>", at)) >= 0 and (end := data.find(b"</page>", begin)) >= 0:
        at = end + len(b"</page>")
        found.append(data[begin:at])
    return found


@given(XML, st.integers(1, 20), st.integers(1, 9))
def test_each_page_is_found_once_whatever_the_parts(data: bytes, part: int, size: int) -> None:
    # A page that begins inside another one is no dump; its parts may disagree.
    if b"<page>" in b"".join(p[1:] for p in whole_pages(data)):
        return
    found = [p for at in range(0, len(data), part) for p in pages(pieces(data, at, at + part, size), Losses())]
    expected = whole_pages(data)
    assert found[: len(expected)] == expected


@given(LINES, st.integers(1, 20), st.integers(1, 9))
def test_each_line_is_found_once_whatever_the_parts(data: bytes, part: int, size: int) -> None:
    found = [
        line
        for at in range(0, len(data), part)
        for line in own_lines(lines(pieces(data, at, at + part, size), Losses(), from_start=at == 0))
    ]
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert found == expected[: len(expected) - (expected[-1] == b"")]


@given(LINES, st.integers(1, 20), st.integers(1, 9))
def test_each_paragraph_is_found_once_whatever_the_parts(data: bytes, part: int, size: int) -> None:
    def read(part: int) -> list[bytes]:
        return [
            paragraph
            for at in range(0, len(data), part)
            for paragraph in paragraphs(
                lines(pieces(data, at, at + part, size), Losses(), from_start=at == 0), from_start=at == 0
            )
        ]

    whole = read(len(data) + 1)
    assert read(part) == whole
    assert b"".join(b"".join(whole).split()) == b"".join(data.split())


@given(LINES, st.integers(5, 20))
def test_a_text_is_divided_without_a_loss_and_between_characters(data: bytes, part: int) -> None:
    found = [
        b"".join(stretch(pieces(data, at, at + part, part), from_start=at == 0))
        for at in range(0, len(data), part)
    ]
    assert b"".join(found) == data
    for text in found:
        text.decode()


def test_damage_costs_the_records_that_it_touches() -> None:
    losses = Losses()
    every = [Piece(True, b"<page>1</page><page>2"), Piece(True, None), Piece(True, b"3</page><page>4</page>")]
    assert list(pages(every, losses)) == [b"<page>1</page>", b"<page>4</page>"]
    assert losses.records == 1
    every = [Piece(True, b"a\nb"), Piece(True, None), Piece(True, b"c\nd\n")]
    losses = Losses()
    assert list(own_lines(lines(every, losses, from_start=True))) == [b"a", b"d"]
    assert losses.records == 1


def test_what_is_too_long_is_left_out_and_takes_no_memory(monkeypatch) -> None:
    monkeypatch.setattr(records, "MOST_RECORD_BYTES", 100)
    losses = Losses()
    long = [
        Piece(True, b"<page>ok</page><page>"),
        *[Piece(True, b"x" * 30)] * 50,
        Piece(True, b"</page><page>1</page>"),
    ]
    assert list(pages(long, losses)) == [b"<page>ok</page>", b"<page>1</page>"]
    assert losses.too_long == 1
    losses = Losses()
    long = [Piece(True, b"ok\n"), *[Piece(True, b"x" * 30)] * 50, Piece(True, b"\nlast")]
    assert list(own_lines(lines(long, losses, from_start=True))) == [b"ok", None, b"last"]
    assert losses.too_long == 1


def test_a_part_inside_a_long_line_is_not_read_on() -> None:
    read = 0

    def endless() -> Iterator[Piece]:
        nonlocal read
        yield Piece(True, b"x" * 10)
        while True:
            read += 1
            yield Piece(False, b"x" * 10)

    assert list(own_lines(lines(endless(), Losses(), from_start=False))) == []
    assert read == 1
