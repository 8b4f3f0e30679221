"""A corpus as one array of token ids on disk, made once and mapped by every rank."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wirecost.corpus.text import read_text
from wirecost.corpus.tokenizer import make_tokenizer
from wirecost.errors import SpecError

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def prepare_tokens(corpus: str, tokenizer: str, vocab_size: int, folder: Path) -> Path:
    """Tokenizes a corpus into `folder` unless that is done already; returns the .npy file's path.

    Beside it lies the tokenizer as JSON (the `tokenizers` library's format).

    Raises:
        SpecError, UnsupportedError: see `read_text` and `make_tokenizer`.
    """
    text = read_text(corpus)
    digest = hashlib.sha256(f"{tokenizer}\0{vocab_size}\0{text}".encode()).hexdigest()[:12]
    target = folder / f"{tokenizer}-{vocab_size}-{digest}.npy"
    if target.exists():
        return target
    made = make_tokenizer(tokenizer, text, vocab_size)
    # Paragraph by paragraph: one call over the whole text would hold an object a character.
    encoded = made.encode_batch(text.split("\n\n"))
    dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    ids = np.concatenate([np.asarray(e.ids, dtype=dtype) for e in encoded if e.ids])
    folder.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".tokenizer.json").write_text(made.to_str(pretty=True), encoding="utf-8")
    partial = target.with_suffix(".partial")
    with partial.open("wb") as file:
        # Not np.save(file): on a full disk that raises an error without a number.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(ids))
        file.write(ids.data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(target)
    return target


def load_tokens(path: Path, length: int) -> Tokens:
    """Maps a token file; pages are shared between the ranks of one machine.

    Args:
        length: tokens of text that one training sequence is made from.

    Raises:
        SpecError: if the corpus is shorter than that.
    """
    tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(tokens) < length:
        raise SpecError(f"the corpus has {len(tokens)} tokens, fewer than the {length} of one training sequence")
    return tokens
