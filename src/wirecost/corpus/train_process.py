"""Trains a tokenizer on a sample of a corpus, in a process of its own, because it takes much memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from wirecost.corpus.encoder import Vocabulary
from wirecost.corpus.extract import Counts, Options, documents
from wirecost.corpus.parts import sampled
from wirecost.corpus.sources import Source
from wirecost.corpus.vocabulary_training import train_vocabulary, trained_kind
from wirecost.errors import SpecError, WirecostError

SAMPLE_CHARACTERS = {"bpe": 16 << 20, "wordpiece": 16 << 20, "unigram": 6 << 20}
"""Most characters that a tokenizer is trained on. The Unigram trainer takes 60 bytes for each."""
FEW_CHARACTERS = 1 << 20
_PARTS = 16
_MOST_FAILURES = 50
_CHECK_S = 1.0


@dataclass(frozen=True)
class Training:
    """What a tokenizer is trained on.

    Attributes:
        name, size: see `train_vocabulary`.
        few: whether a small sample is enough, so that the training takes seconds.
    """

    name: str
    sources: tuple[Source, ...]
    options: Options
    size: int | None
    few: bool = False


def train(training: Training, record_limit_s: float) -> Vocabulary:
    """Returns a tokenizer that is trained on a sample, which is spread over the files.

    Args:
        record_limit_s: time that a record may take before it is left out.

    Raises:
        SpecError: see `train_vocabulary`, or if the process is killed.
    """
    skipped: set[tuple[int, int]] = set()
    while len(skipped) < _MOST_FAILURES:
        result = _attempt(training, skipped, record_limit_s)
        if isinstance(result, BaseException):
            raise result
        if isinstance(result, Vocabulary):
            return result
        if result in skipped or result[0] < 0:
            raise SpecError("the process that trains the tokenizer was ended: probably memory is short")
        skipped.add(result)
    raise SpecError(
        f"{_MOST_FAILURES} records of the sample can't be read; name a tokenizer that is trained already"
    )


def _attempt(
    training: Training, skipped: Collection[tuple[int, int]], limit_s: float
) -> Vocabulary | BaseException | tuple[int, int]:
    """Returns the tokenizer, an error, or the number of the part and record at which the process hung or ended."""
    context = multiprocessing.get_context("spawn")
    busy = context.RawArray("d", 3)
    busy[0] = -1
    mine, other = context.Pipe()
    process = context.Process(target=_work, args=(other, busy, training, frozenset(skipped)), daemon=True)
    process.start()
    other.close()
    try:
        while not mine.poll(_CHECK_S):
            if busy[0] >= 0 and time.monotonic() - busy[2] > limit_s:
                return int(busy[0]), int(busy[1])
        return mine.recv()
    except (EOFError, ConnectionError):
        return int(busy[0]), int(busy[1])
    finally:
        process.kill()
        process.join()
        mine.close()


def _work(connection: Connection, busy: Any, training: Training, skipped: Collection[tuple[int, int]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def on_record(part: int, record: int) -> None:
        busy[2] = time.monotonic()
        busy[1], busy[0] = record, part

    limit = FEW_CHARACTERS if training.few else SAMPLE_CHARACTERS[trained_kind(training.name)]
    result: Any
    try:
        texts = sample_texts(training, limit, skipped, on_record)
        result = train_vocabulary(training.name, texts, training.size)
    except WirecostError as error:
        result = SpecError(str(error))
    except OSError as error:
        result = error
    with contextlib.suppress(ConnectionError):
        connection.send(result)


def sample_texts(
    training: Training,
    limit: int,
    skipped: Collection[tuple[int, int]] = (),
    on_record: Callable[[int, int], object] = lambda *_: None,
) -> Iterator[str]:
    """Yields texts from all files, up to `limit` characters.

    Args:
        skipped: numbers of parts and records that are left out.
        on_record: called with the numbers of a part and a record before it is read, and with -1 at the end.
    """
    chosen = sampled(training.sources, training.options, _PARTS)
    for number, part in enumerate(chosen):
        share = limit // (len(chosen) - number)
        leave_out = {record for other, record in skipped if other == number}
        for document in documents(
            training.sources[part.source],
            part,
            training.options,
            Counts(),
            skipped=leave_out,
            on_record=lambda record, number=number: on_record(number, record),
        ):
            text = document.text[:share]
            limit -= len(text)
            share -= len(text)
            # Short texts: a trainer copies each of them several times.
            yield from (text[start : start + 10_000] for start in range(0, len(text), 10_000))
            if share <= 0:
                break
    on_record(-1, -1)
