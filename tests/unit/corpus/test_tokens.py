from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wirecost.corpus import load_tokens, prepare_tokens
from wirecost.errors import SpecError

pytest.importorskip("tokenizers")


def test_tokens_are_the_text(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    text = "The wire costs time.\n\nIt costs more over a slow wire: naïve, 1 000 €.\n\n" * 40
    (tmp_path / "t.txt").write_text(text)
    path = prepare_tokens(str(tmp_path / "t.txt"), "bpe", 400, tmp_path / "out")
    tokens = load_tokens(path, 16)
    assert tokens.dtype == np.uint16
    assert tokens.max() < 400
    tokenizer = Tokenizer.from_file(str(path.with_suffix(".tokenizer.json")))
    assert tokenizer.decode(tokens.tolist()) == text.replace("\n\n", "")


def test_a_second_call_does_nothing(tmp_path: Path) -> None:
    first = prepare_tokens("python-docs", "bpe", 512, tmp_path)
    before = first.stat().st_mtime_ns
    assert prepare_tokens("python-docs", "bpe", 512, tmp_path) == first
    assert first.stat().st_mtime_ns == before
    assert len(load_tokens(first, 128)) > 50_000


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"\xff", "not UTF-8"), (b"  \n", "holds no text")]
)
def test_a_corpus_that_is_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "c.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        prepare_tokens(str(path), "bpe", 400, tmp_path)


def test_a_corpus_shorter_than_a_sequence(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("short")
    path = prepare_tokens(str(tmp_path / "c.txt"), "bpe", 400, tmp_path)
    with pytest.raises(SpecError, match="fewer than the 128 of one training sequence"):
        load_tokens(path, 128)


def test_a_path_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"data.corpus: 'a\\x00b' is not a path"):
        prepare_tokens("a\0b", "bpe", 400, tmp_path)


def test_a_vocabulary_larger_than_memory_costs_none(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("The wire costs time. " * 40)
    tokens = load_tokens(prepare_tokens(str(tmp_path / "c.txt"), "bpe", 10**12, tmp_path), 16)
    assert tokens.dtype == np.uint32
    assert tokens.max() < 256 + 21 * 40


def test_a_vocabulary_too_small(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="too small: a byte-level tokenizer has 256"):
        prepare_tokens("python-docs", "bpe", 100, tmp_path)
