"""Turns the documents of a part into token ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wirecost.corpus.encoder import Encoder
from wirecost.corpus.extract import Counts, Document, Options, Part, documents
from wirecost.corpus.sources import Kind, Source
from wirecost.errors import MissingExtraError


@dataclass(frozen=True)
class Tokenized:
    """The token ids of a part.

    Attributes:
        tokens: ids, (tokens,).
        lengths: number of tokens of each sequence, (sequences,). A sequence is a sentence or a document.
        sequences: number of sequences of each document, (documents,).
        title_hashes: of each document, 0 for those without a title, (documents,).
        characters: number of characters of the text.
        seconds: the time that it took.
    """

    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int32]
    title_hashes: npt.NDArray[np.uint64]
    characters: int
    seconds: float
    counts: Counts


def tokenize(
    source: Source,
    part: Part,
    options: Options,
    encoder: Encoder,
    *,
    sentences: bool,
    end_documents: bool,
    skipped: Iterable[int] = (),
    on_record: Callable[[int], object] = lambda _: None,
) -> Tokenized:
    """Returns the token ids of the documents of a part.

    Args:
        sentences: whether each sentence becomes a sequence; otherwise each document does.
        end_documents: whether the vocabulary's end token follows each document.
        skipped, on_record: see `documents`.

    Raises:
        SpecError: see `documents`.
        MissingExtraError: if a library isn't installed.
    """
    started_s = time.perf_counter()
    counts = Counts() if part.losses is None else Counts(losses=part.losses)
    found: list[Document] = []
    ids: list[npt.NDArray[np.int32]] = []
    per_document: list[int] = []
    characters = 0

    def texts() -> Iterator[str]:
        nonlocal characters
        for document in documents(source, part, options, counts, skipped=skipped, on_record=on_record):
            characters += len(document.text)
            parts = split_sentences(document.text, language_of(source)) if sentences else [document.text]
            found.append(Document("", document.title_hash))
            per_document.append(len(parts))
            yield from parts

    ids += encoder.encode(texts())
    # A text file is one document, which ends with the last part.
    ends = end_documents and (part.last or not is_one_document(source, options))
    end = np.array([encoder.end], np.int32) if ends and encoder.end is not None else None
    tokens: list[npt.NDArray[np.int32]] = []
    lengths: list[int] = []
    sequences = np.zeros(len(found), np.int32)
    first = 0
    for number, count in enumerate(per_document):
        parts = [part for part in ids[first : first + count] if len(part)]
        first += count
        if not parts:
            counts.empty += 1
            continue
        if end is not None:
            parts[-1] = np.concatenate([parts[-1], end])
        tokens += parts
        lengths += map(len, parts)
        sequences[number] = len(parts)
    return Tokenized(
        np.concatenate(tokens) if tokens else np.empty(0, np.int32),
        np.array(lengths, np.int32),
        sequences,
        np.array([document.title_hash for document in found], np.uint64),
        characters,
        time.perf_counter() - started_s,
        counts,
    )


def is_one_document(source: Source, options: Options) -> bool:
    """Returns whether a file is a single document."""
    return source.kind is Kind.TEXT and options.text_documents == "file"


def language_of(source: Source) -> str:
    """Returns the language of a dump, from the name of its database (`dewiki`); English for other files."""
    start = source.header.find(b"<dbname>")
    name = source.header[start + 8 : start + 40].partition(b"wiki")[0] if start >= 0 else b""
    return name.decode() if name.isalpha() and len(name) in (2, 3) else "en"


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, which keep their spaces."""
    try:
        import sentencex
    except ImportError as error:
        raise MissingExtraError("splitting text into sentences", "data") from error
    # The library is compiled, and declares no types.
    segment: Callable[[str, str], list[str]] = sentencex.segment  # pyright: ignore[reportAttributeAccessIssue]
    return [sentence for sentence in segment(language, text) if sentence.strip()]
