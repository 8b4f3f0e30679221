"""Trains a tokenizer on a sample of a corpus, in a process of its own, because it takes much memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from wirecost.corpus.encoder import Vocabulary
from wirecost.corpus.extract import Counts, Options, documents
from wirecost.corpus.parts import sampled
from wirecost.corpus.sources import Source
from wirecost.corpus.vocabulary_training import train_vocabulary
from wirecost.errors import SpecError, WirecostError

SAMPLE_CHARACTERS = {"bpe": 16 << 20, "wordpiece": 16 << 20, "unigram": 6 << 20}
"""Most characters that a tokenizer is trained on. The Unigram trainer takes 60 bytes for each."""
FEW_CHARACTERS = 1 << 20
_FEW_SIZE = 2000
_PARTS = 16


def train(
    name: str, sources: Sequence[Source], options: Options, size: int | None, *, few: bool = False
) -> Vocabulary:
    """Returns a tokenizer that is trained on a sample, which is spread over the files.

    Args:
        name, size: see `train_vocabulary`.
        few: whether a small, quickly trained tokenizer is enough.

    Raises:
        SpecError: see `train_vocabulary`, or if the process is killed.
    """
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=_work, args=(other, name, tuple(sources), options, size, few), daemon=True)
    process.start()
    other.close()
    try:
        result = mine.recv()
    except (EOFError, ConnectionError) as error:
        raise SpecError("the process that trains the tokenizer was ended: probably memory is short") from error
    finally:
        process.kill()
        process.join()
        mine.close()
    if isinstance(result, BaseException):
        raise result
    return result


def _work(
    connection: Connection, name: str, sources: Sequence[Source], options: Options, size: int | None, few: bool
) -> None:
    from wirecost.corpus.vocabulary_training import trained_kind

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit = FEW_CHARACTERS if few else SAMPLE_CHARACTERS[trained_kind(name)]
    result: Any
    try:
        result = train_vocabulary(name, sample_texts(sources, options, limit), _FEW_SIZE if few else size)
    except WirecostError as error:
        result = SpecError(str(error))
    except OSError as error:
        result = error
    with contextlib.suppress(ConnectionError):
        connection.send(result)


def sample_texts(sources: Sequence[Source], options: Options, limit: int) -> Iterator[str]:
    """Yields texts from all files, up to `limit` characters."""
    chosen = sampled(sources, options, _PARTS)
    for number, part in enumerate(chosen):
        share = limit // (len(chosen) - number)
        for document in documents(sources[part.source], part, options, Counts()):
            text = document.text[:share]
            limit -= len(text)
            share -= len(text)
            # Short texts: a trainer copies each of them several times.
            yield from (text[start : start + 10_000] for start in range(0, len(text), 10_000))
            if share <= 0:
                break
