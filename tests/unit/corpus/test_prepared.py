from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus.indexed import IndexedWriter
from wirecost.corpus.prepared import PreparedCorpus, Windows, load_windows
from wirecost.errors import SpecError

SEQUENCE = 7


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """The numbers from 0 to 999 in three of Megatron's data sets, in sequences of at most 7."""
    folder = tmp_path_factory.mktemp("corpus")
    first = 0
    for number, size in enumerate((300, 10, 690)):
        writer = IndexedWriter(folder / f"part-{number}", np.dtype("<u2"))
        lengths = [SEQUENCE] * (size // SEQUENCE) + [size % SEQUENCE] * (size % SEQUENCE > 0)
        writer.add(np.arange(first, first + size), np.array(lengths, np.int32))
        writer.finish()
        first += size
    return PreparedCorpus(folder, know_size=True)


@given(st.integers(0, 999), st.integers(1, 400))
def test_tokens_are_read_across_shards(corpus: PreparedCorpus, start: int, length: int) -> None:
    length = min(length, 1000 - start)
    assert corpus.take(start, length).tolist() == list(range(start, start + length))
    begins = sorted({*range(0, 300, 7), *range(300, 310, 7), *range(310, 1000, 7)})
    assert corpus.breaks(start, length).tolist() == [b - start for b in begins if start < b < start + length]


def test_the_number_of_ids_of_megatrons_data_set_is_counted(corpus: PreparedCorpus) -> None:
    assert corpus.vocabulary.size == 1000


@pytest.mark.parametrize(("length", "overlap"), [(17, 1), (16, 0), (500, 1), (1000, 1), (999, 0)])
def test_each_epoch_visits_every_window_once(corpus: PreparedCorpus, length: int, overlap: int) -> None:
    windows = Windows(corpus)
    stride = length - overlap
    count = max(1, (1000 - overlap) // stride - 1)
    epochs = [windows.starts(np.arange(e * count, (e + 1) * count), length, overlap, 5) for e in range(3)]
    for starts in epochs:
        assert np.diff(np.sort(starts)).tolist() == [stride] * (count - 1)
        assert starts.min() >= 0
        assert starts.max() + length <= 1000
    if count > 10:
        assert epochs[0].tolist() != epochs[1].tolist()
    # Any place is computed alone, as after a resumed run.
    again = [int(windows.starts(n, length, overlap, 5)[0]) for n in range(3 * count)]
    assert again == np.concatenate(epochs).tolist()


def test_a_part_of_a_corpus_stays_within_it(corpus: PreparedCorpus) -> None:
    train, held_out = Windows(corpus)[:950], Windows(corpus)[950:]
    assert (len(train), len(held_out)) == (950, 50)
    assert (train.starts(np.arange(500), 9, 1, 1) + 9).max() <= 950
    assert held_out.starts(np.arange(50), 9, 1, 1).min() >= 950


def test_reading_ahead_takes_any_stretch(corpus: PreparedCorpus) -> None:
    corpus.read_ahead([0, 295, 990], 10)
    assert len(corpus._files) == 3


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"neither manifest.json nor .idx files"):
        load_windows(tmp_path, 4)
    (tmp_path / "manifest.json").write_text('{"a": ')
    with pytest.raises(SpecError, match="is no manifest"):
        load_windows(tmp_path, 4)


def test_a_corpus_shorter_than_a_window(corpus: PreparedCorpus) -> None:
    with pytest.raises(SpecError, match="has 1000 tokens, fewer than the 1001 of one training sequence"):
        load_windows(corpus.path, 1001)
