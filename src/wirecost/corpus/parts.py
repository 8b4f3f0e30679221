"""Divides the files of a corpus into parts. The same files always give the same parts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from wirecost import reading
from wirecost.corpus.extract import Options, Part
from wirecost.corpus.records import MOST_RECORD_BYTES, Losses
from wirecost.corpus.sources import Kind, Source
from wirecost.decompression import FREE_BYTES, HEAD_BYTES, MOST_EXPANSION, DamagedError, decompress
from wirecost.errors import MissingExtraError, SpecError

_PART_BYTES = 2 << 20
_ROWS = 64
"""Rows of a Parquet file that are read at once."""


def parts(sources: Sequence[Source], options: Options, source: int = 0, start: int = 0) -> Iterator[Part]:
    """Yields the parts of all files.

    Args:
        source, start: number of a file, and where in it to begin: the `end` of an earlier part.

    Raises:
        SpecError: if a file can't be read.
    """
    for number in range(source, len(sources)):
        yield from _parts_of(sources[number], number, options, start)
        start = 0


def _parts_of(source: Source, number: int, options: Options, start: int) -> Iterator[Part]:
    if source.seekable:
        for part in _ranges(source, number):
            if part.start >= start:
                yield part
        return
    every = _parquet(source, number, options) if source.kind is Kind.PARQUET else _stream(source, number, options)
    for part in every:
        if part.start >= start:
            yield part


def _ranges(source: Source, number: int) -> Iterator[Part]:
    """Yields the parts of a file in which reading can begin anywhere. The last one isn't much smaller than others,
    so that it contains an end of a line."""
    first = 0
    while first < source.size:
        end = first + source.chunk_bytes
        if source.size - end < source.chunk_bytes // 2:
            end = source.size
        yield Part(number, first, end, consumed=end, last=end == source.size)
        first = end


def sampled(sources: Sequence[Source], options: Options, count: int) -> list[Part]:
    """Returns about `count` parts that are spread over the files evenly. Of files that can only be read from their
    start they are the first ones."""
    total = sum(source.size for source in sources)
    chosen: list[Part] = []
    for number, source in enumerate(sources):
        wanted = max(1, round(count * source.size / total))
        if len(sources) > count and number % (len(sources) // count):
            continue
        if source.seekable:
            every = list(_ranges(source, number))
            step = max(1, len(every) // wanted)
            chosen += every[step // 2 :: step][:wanted]
        else:
            chosen += (part for part, _ in zip(_parts_of(source, number, options, 0), range(wanted), strict=False))
    return chosen


def _stream(source: Source, number: int, options: Options) -> Iterator[Part]:
    """Yields parts of a file that can only be decompressed from its start. They end where records end."""
    losses = Losses()
    position = consumed = 0
    buffer = b""
    dropping = False
    held: Part | None = None  # until it is known whether it is the last one
    with reading.open_file(source.path, pipes=False, error=SpecError) as file:
        head = file.read(HEAD_BYTES)
        pieces = decompress(head, file, str(source.path), SpecError)
        while True:
            try:
                piece = next(pieces, None)
            except DamagedError:
                losses.cut_off = True
                piece = None
            if piece is None:
                break
            buffer += piece
            consumed = os.lseek(file.fileno(), 0, os.SEEK_CUR)
            if len(buffer) < _PART_BYTES:
                continue
            cut = _last_end(buffer, source, options)
            if cut > 0:
                data, buffer = buffer[:cut], buffer[cut:]
                if dropping:
                    data = data[_first_end(data, source, options) :]
                    dropping = False
                if held is not None:
                    yield held
                held = Part(number, position, position + cut, data, consumed=consumed)
                position += cut
            elif len(buffer) > MOST_RECORD_BYTES:
                losses.too_long += not dropping
                dropping = True
                position += len(buffer) - _PART_BYTES
                buffer = buffer[-_PART_BYTES:]
    if dropping:
        buffer = b""
    last = Part(number, position, position + len(buffer), buffer, consumed=source.size, last=True, losses=losses)
    if held is not None and buffer.strip():
        yield held
    elif held is not None:
        last = replace(last, start=held.start, data=(held.data or b"") + buffer)
    yield last


def _ends(source: Source, options: Options) -> tuple[bytes, ...]:
    if source.kind is Kind.WIKI:
        return (b"</page>",)
    if source.kind is Kind.TEXT and options.text_documents == "blank-line":
        return (b"\n\n", b"\n\r\n")
    if source.kind is Kind.TEXT and options.text_documents == "file":
        return (b"\n", b" ")
    return (b"\n",)


def _last_end(data: bytes, source: Source, options: Options) -> int:
    """Returns where the last record ends that is complete; 0 if none is."""
    for end in _ends(source, options):
        at = data.rfind(end)
        if at >= 0:
            return at + len(end)
    return 0


def _first_end(data: bytes, source: Source, options: Options) -> int:
    return min(at + len(end) for end in _ends(source, options) if (at := data.find(end)) >= 0)


def _parquet(source: Source, number: int, options: Options) -> Iterator[Part]:
    """Yields the rows of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("reading Parquet", "data") from error
    try:
        with pq.ParquetFile(source.path) as file:
            _check_column(file, source, options)
        # A text that is repeated is kept once, so that it can't fill the memory.
        settings = {"read_dictionary": [options.text_key], "pre_buffer": False, "buffer_size": 1 << 20}
        with pq.ParquetFile(source.path, **settings) as file:
            texts: list[str] = []
            losses = Losses()
            row = start = size = 0
            for batch in file.iter_batches(_ROWS, columns=[options.text_key], use_threads=False):
                for text in _column_texts(batch.column(0), losses):
                    texts.append(text)
                    size += len(text)
                row += batch.num_rows
                if size >= _PART_BYTES:
                    consumed = source.size * row // max(file.metadata.num_rows, 1)
                    yield Part(number, start, row, texts=tuple(texts), consumed=consumed)
                    texts, size, start = [], 0, row
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{source.path}: can't be read as Parquet: {str(error).splitlines()[0][:200]}") from error
    yield Part(number, start, row, texts=tuple(texts), consumed=source.size, last=True, losses=losses)


def _column_texts(column: Any, losses: Losses) -> Iterator[str]:
    for value in column:
        text = value.as_py()
        if text is not None and len(text) > MOST_RECORD_BYTES:
            losses.too_long += 1
        else:
            yield text or ""


def _check_column(file: Any, source: Source, options: Options) -> None:
    """Raises SpecError unless the file has a column of text, which doesn't expand to too many bytes."""
    from pyarrow import types

    schema = file.schema_arrow
    if options.text_key not in schema.names:
        raise SpecError(
            f"{source.path}: has no column {options.text_key!r}; its columns are {', '.join(schema.names)[:200]} "
            "(--text-key names another)"
        )
    kind = schema.field(options.text_key).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise SpecError(f"{source.path}: its column {options.text_key!r} contains {kind}, not text")
    for group in range(file.metadata.num_row_groups):
        described = file.metadata.row_group(group)
        expanded = sum(described.column(n).total_uncompressed_size for n in range(described.num_columns))
        if expanded > max(FREE_BYTES * 16, MOST_EXPANSION * source.size):
            raise SpecError(f"{source.path}: {source.size} bytes become more than {expanded >> 20} MiB: refused")
