"""Reads a prepared corpus: its shards as one long row of tokens, cut into windows in a random order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wirecost import reading
from wirecost.corpus.indexed import read_indexed
from wirecost.corpus.manifest import FILE_NAME, load_manifest
from wirecost.corpus.order import hashed, shuffled
from wirecost.errors import SpecError

WORD_STARTS = "word-starts.bin"
"""File with a byte for each token id: 1 if the token begins a word."""
_MOST_IDS = 1 << 24
_FIRST_WINDOW = 1
_FIRST_ORDER = 2


@dataclass(frozen=True)
class CorpusVocabulary:
    """The token ids of a corpus.

    Attributes:
        size: number of ids.
        end: id of the token that ends a document; None without one.
        special: ids of the special tokens of BERT and T5, by name.
        word_starts: whether each token begins a word, (size,); None if this isn't known.
    """

    size: int
    end: int | None = None
    special: dict[str, int] | None = None
    word_starts: npt.NDArray[np.bool_] | None = None


def is_prepared(corpus: str) -> bool:
    """Returns whether a corpus is a prepared one: its folder, or the path of one of Megatron's data sets without
    .bin or .idx."""
    if "\0" in corpus:
        return False
    try:
        return Path(corpus).is_dir() or Path(f"{corpus}.idx").is_file()
    except OSError:
        return False


class PreparedCorpus:
    """The shards of a corpus.

    Args:
        path: the folder of a corpus, a folder of Megatron's data sets, or one of these without .bin and .idx.
        know_size: whether the number of ids is needed. Without a manifest it is the largest id and one, for which
            all tokens are read.

    Raises:
        SpecError: if it is none, or damaged.
    """

    def __init__(self, path: Path, *, know_size: bool = False) -> None:
        self.path = path
        self.vocabulary = CorpusVocabulary(0)
        if (path / FILE_NAME).is_file():
            prefixes, expected = self._from_manifest()
        else:
            prefixes, expected = _megatron_prefixes(path), None
        self.shards = [read_indexed(prefix) for prefix in prefixes]
        for number, shard in enumerate(self.shards):
            if expected is not None and len(shard.tokens) != expected[number]:
                raise SpecError(
                    f"{prefixes[number]}.bin: has {len(shard.tokens)} tokens, and {FILE_NAME} says "
                    f"{expected[number]}: damaged; prepare the corpus again"
                )
        self.starts = np.cumsum([0, *(len(shard.tokens) for shard in self.shards)])
        """First token of each shard in the corpus, and the number of all tokens, (shards + 1,)."""
        if know_size and not self.vocabulary.size:
            largest = max((_largest(shard.tokens) for shard in self.shards), default=-1)
            self.vocabulary = CorpusVocabulary(largest + 1)
        self._files: dict[int, int] = {}
        self._prefixes = prefixes

    def _from_manifest(self) -> tuple[list[Path], list[int]]:
        manifest = load_manifest(self.path)
        if not manifest.complete:
            raise SpecError(f"{self.path}: isn't complete; finish it with wirecost data prepare ... --resume")
        tokenizer = manifest.tokenizer
        if not 0 < tokenizer.size <= _MOST_IDS:
            raise SpecError(f"{self.path}: {tokenizer.size} token ids can't be right")
        starts = None
        if (self.path / WORD_STARTS).is_file():
            data = reading.read_bytes(self.path / WORD_STARTS, most_bytes=_MOST_IDS, pipes=False, error=SpecError)
            if len(data) != tokenizer.size:
                raise SpecError(f"{self.path / WORD_STARTS}: has {len(data)} bytes for {tokenizer.size} token ids")
            starts = np.frombuffer(data, np.uint8) != 0
        self.vocabulary = CorpusVocabulary(tokenizer.size, tokenizer.end, tokenizer.special, starts)
        return [self.path / shard.name for shard in manifest.shards], [shard.tokens for shard in manifest.shards]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _places(self, start: int, length: int) -> list[tuple[int, int, int]]:
        """Returns shards with the first and last + 1 of their tokens that a stretch of the corpus consists of."""
        shard = int(np.searchsorted(self.starts, start, "right")) - 1
        places = []
        end = start + length
        while start < end:
            stop = min(end, int(self.starts[shard + 1]))
            places.append((shard, start - int(self.starts[shard]), stop - int(self.starts[shard])))
            start = stop
            shard += 1
        return places

    def take(self, start: int, length: int) -> npt.NDArray[np.integer]:
        """Returns a copy of consecutive tokens, (length,)."""
        pieces = [self.shards[shard].tokens[first:last] for shard, first, last in self._places(start, length)]
        return np.array(pieces[0]) if len(pieces) == 1 else np.concatenate(pieces)

    def breaks(self, start: int, length: int) -> npt.NDArray[np.int64]:
        """Returns where sequences begin inside consecutive tokens: numbers from 1 to length - 1."""
        found: list[npt.NDArray[np.int64]] = []
        passed = 0
        for shard, first, last in self._places(start, length):
            pointers, size = self.shards[shard].pointers, self.shards[shard].tokens.itemsize
            low, high = np.searchsorted(pointers, [first * size, last * size])
            found.append(pointers[low:high] // size - first + passed)
            passed += last - first
        every = np.concatenate(found)
        return every[every > 0]

    def read_ahead(self, starts: Sequence[int], length: int) -> None:
        """Asks the kernel to read stretches of the corpus into memory, and doesn't wait for it."""
        for start in starts:
            for shard, first, last in self._places(start, length):
                if shard not in self._files:
                    self._files[shard] = os.open(f"{self._prefixes[shard]}.bin", os.O_RDONLY | os.O_CLOEXEC)
                size = self.shards[shard].tokens.itemsize
                os.posix_fadvise(self._files[shard], first * size, (last - first) * size, os.POSIX_FADV_WILLNEED)

    def __del__(self) -> None:
        for descriptor in getattr(self, "_files", {}).values():
            os.close(descriptor)


def _largest(tokens: npt.NDArray[np.integer]) -> int:
    largest = -1
    for start in range(0, len(tokens), 1 << 24):
        piece = tokens[start : start + (1 << 24)]
        if int(piece.min()) < 0:
            raise SpecError("a data set of Megatron's contains negative token ids")
        largest = max(largest, int(piece.max()))
    return largest


def _megatron_prefixes(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    prefixes = [file.with_suffix("") for file in sorted(path.glob("*.idx"))]
    if not prefixes:
        raise SpecError(
            f"{path}: is no prepared corpus: it contains neither {FILE_NAME} nor .idx files "
            "(wirecost data prepare writes them)"
        )
    return prefixes


class Windows:
    """A stretch of a corpus, cut into windows of equal length that are visited in a random order.

    In each epoch every token is in one window, except for less than one window at the ends. The order and the
    borders follow from the seed and the epoch, and any place in the order can be computed at once: it doesn't
    matter how many ranks share the windows, nor where training is resumed.
    """

    def __init__(self, corpus: PreparedCorpus, first: int = 0, last: int | None = None) -> None:
        self.corpus = corpus
        self.first = first
        self.last = len(corpus) if last is None else last

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, part: slice) -> Windows:
        first, last, _ = part.indices(len(self))
        return Windows(self.corpus, self.first + first, self.first + last)

    def starts(self, places: npt.ArrayLike, length: int, overlap: int, seed: int) -> npt.NDArray[np.int64]:
        """Returns the first tokens of windows.

        Args:
            places: numbers of windows in the order of all epochs.
            length: number of tokens of a window.
            overlap: number of tokens that consecutive windows share. The last token of a window of GPT is only a
                target there, and an input in the next one.
        """
        stride = length - overlap
        # The borders move by less than a window, so that the same number fits in each epoch.
        count = max(1, (len(self) - overlap) // stride - 1)
        room = len(self) - overlap - count * stride
        numbers = np.array(places, dtype=np.int64, ndmin=1)
        epochs = numbers // count
        starts = np.empty_like(numbers)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            offset = hashed(seed, epoch, _FIRST_WINDOW) % (min(room, stride - 1) + 1)
            windows = shuffled(numbers[here] - epoch * count, count, seed, epoch, _FIRST_ORDER)
            starts[here] = self.first + offset + windows * stride
        return starts

    def rows(self, starts: Sequence[int], length: int) -> npt.NDArray[np.integer]:
        """Returns windows, (windows, length)."""
        return np.stack([self.corpus.take(start, length) for start in starts])


def load_windows(path: Path, length: int, *, know_size: bool = False) -> Windows:
    """Returns the windows of a prepared corpus.

    Args:
        length: number of tokens of a window.

    Raises:
        SpecError: see `PreparedCorpus`; and if the corpus is shorter than a window.
    """
    windows = Windows(PreparedCorpus(path, know_size=know_size))
    if len(windows) < length:
        raise SpecError(f"the corpus has {len(windows)} tokens, fewer than the {length} of one training sequence")
    return windows
