"""Estimates the time and the size of a corpus from a sample of its files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from wirecost.corpus.encoder import Encoder, Vocabulary
from wirecost.corpus.parts import sampled
from wirecost.corpus.pool import Pool, Setup
from wirecost.corpus.request import Estimate, Progress, Request, Silent
from wirecost.corpus.sources import Source, check_installed, find_sources
from wirecost.corpus.train_process import Training, train
from wirecost.corpus.vocabularies import find_vocabulary


def estimate(request: Request, progress: Progress | None = None) -> Estimate:
    """Returns what preparing a corpus would take, and writes nothing.

    A tokenizer that would be trained on the corpus is replaced by one of its size that is trained on less text.

    Raises:
        SpecError, MissingExtraError: see `prepare`.
    """
    progress = progress or Silent()
    sources = find_sources(request.paths)
    check_installed(sources)
    vocabulary = find_vocabulary(request.tokenizer)
    if vocabulary is None:
        progress.stage("training a tokenizer")
        vocabulary = train(
            Training(request.tokenizer, tuple(sources), request.options, request.vocab_size, few=True),
            request.record_limit_s,
        )
    setup = setup_of(request, sources, vocabulary)
    with Pool(setup, request.workers, record_limit_s=request.record_limit_s) as pool:
        progress.stage("estimating the time")
        return estimate_with(pool, sources, request)


def setup_of(request: Request, sources: Sequence[Source], vocabulary: Vocabulary) -> Setup:
    """Returns what the processes of a request need."""
    sentences = request.sentences
    if sentences is None:
        sentences = Encoder(vocabulary).token_id("[MASK]") is not None
    return Setup(tuple(sources), request.options, vocabulary, sentences, request.end_documents)


def estimate_with(pool: Pool, sources: Sequence[Source], request: Request) -> Estimate:
    """Estimates the time from parts that are spread over the corpus, and from how their pace varies."""
    workers = request.workers
    chosen = sampled(sources, request.options, max(6, 3 * workers))
    seconds: list[float] = []
    sizes: list[int] = []
    tokens = characters = 0
    before: dict[int, int] = {}
    # The first part of each process also pays for its start.
    for number, (part, result) in enumerate(pool.results([*chosen[:workers], *chosen])):
        if number < min(workers, len(chosen)):
            continue
        seekable = sources[part.source].seekable
        size = part.end - part.start if seekable else part.consumed - before.get(part.source, 0)
        before[part.source] = part.consumed
        if size > 0:
            seconds.append(result.seconds)
            sizes.append(size)
            tokens += len(result.tokens)
            characters += result.characters
    total, sample = sum(source.size for source in sources), max(sum(sizes), 1)
    paces = [s / size for s, size in zip(seconds, sizes, strict=True)]
    pace = sum(seconds) / sample
    error = statistics.stdev(paces) / len(paces) ** 0.5 if len(paces) > 1 else pace
    # Student's t for the few parts, and a tenth for what else the machine does.
    spread = (2.0 * error / pace + 0.1) if pace else 0.0
    whole_s = pace * total / workers
    return Estimate(
        total,
        sample,
        whole_s,
        whole_s * max(0.0, 1 - spread),
        whole_s * (1 + spread),
        tokens * total / sample,
        characters * total / sample,
    )
