"""What is prepared as a corpus, and who is told of the progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wirecost.corpus.extract import Options
from wirecost.corpus.pool import RECORD_LIMIT_S

DEFAULT_SHARD_TOKENS = 64 << 20
"""Tokens of a shard: 128 MiB of 16-bit ids, which take some minutes on two cores."""


@dataclass(frozen=True)
class Request:
    """What is prepared, and how.

    Attributes:
        paths: files and folders.
        tokenizer: see `find_vocabulary`.
        out: the folder of the corpus.
        vocab_size: number of tokens of a tokenizer that is trained on the corpus. None is the usual one.
        sentences: whether each sentence becomes a sequence, which BERT's pairs need. None: with WordPiece only.
        end_documents: whether a token of the vocabulary ends each document.
        shard_tokens: number of tokens after which a shard ends.
        workers: number of processes.
        resume: whether to go on where an earlier run was interrupted.
        record_limit_s: time that one page may take before it is left out.
    """

    paths: tuple[Path, ...]
    tokenizer: str
    out: Path
    options: Options = field(default_factory=Options)
    vocab_size: int | None = None
    sentences: bool | None = None
    end_documents: bool = True
    shard_tokens: int = DEFAULT_SHARD_TOKENS
    workers: int = 1
    resume: bool = False
    record_limit_s: float = RECORD_LIMIT_S


@dataclass(frozen=True)
class Estimate:
    """What preparing a corpus takes, from a sample of it.

    Attributes:
        seconds: of the whole corpus; `least_s` to `most_s` is its interval of 90 %.
        sampled_bytes: size of the sample.
    """

    bytes: int
    sampled_bytes: int
    seconds: float
    least_s: float
    most_s: float
    tokens: float
    characters: float


class Progress(Protocol):
    """Is told what happens."""

    def stage(self, name: str) -> None:
        """Called when something begins that takes seconds."""

    def estimated(self, estimate: Estimate) -> None:
        """Called once before a large corpus is prepared."""

    def advanced(self, done: int, total: int, documents: int, tokens: int, left_s: float | None) -> None:
        """Called after each part, with the bytes of the files that are done. `left_s` is None at the start."""


class Silent:
    """Reports nothing."""

    def stage(self, name: str) -> None: ...

    def estimated(self, estimate: Estimate) -> None: ...

    def advanced(self, done: int, total: int, documents: int, tokens: int, left_s: float | None) -> None: ...
