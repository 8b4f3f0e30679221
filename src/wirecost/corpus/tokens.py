"""Token files: a corpus as one array of token ids on disk. It is written once, and every rank maps it."""

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
"""Token ids, (tokens,)."""


def prepare_tokens(corpus: str, tokenizer: str, vocab_size: int, folder: Path) -> Path:
    """Tokenizes a corpus into `folder`, unless its token file is there already.

    The tokenizer is written beside the token file as JSON, in the format of the `tokenizers` library.

    Args:
        corpus: see `read_text`.
        tokenizer: see `kind` of `make_tokenizer`.

    Returns:
        The path of the token file (.npy).

    Raises:
        SpecError, MissingExtraError, UnsupportedError: see `read_text` and `make_tokenizer`.
    """
    text = read_text(corpus)
    digest = hashlib.sha256(f"{tokenizer}\0{vocab_size}\0{text}".encode()).hexdigest()[:12]
    target = folder / f"{tokenizer}-{vocab_size}-{digest}.npy"
    if target.exists():
        return target
    trained = make_tokenizer(tokenizer, text, vocab_size)
    # The text is encoded by paragraph, because one call over the whole text holds an object for each character.
    encoded = trained.encode_batch(text.split("\n\n"))
    dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    ids = np.concatenate([np.asarray(e.ids, dtype=dtype) for e in encoded if e.ids])
    folder.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".tokenizer.json").write_text(trained.to_str(pretty=True), encoding="utf-8")
    partial = target.with_suffix(".partial")
    with partial.open("wb") as file:
        # np.save(file) isn't used, because on a full disk it raises an error without an errno.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(ids))
        file.write(ids.data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(target)
    return target


def load_tokens(path: Path, length: int) -> Tokens:
    """Maps a token file into memory. The ranks of one machine share its pages.

    Args:
        length: number of tokens of text that one training sequence is made from.

    Returns:
        The token ids, (tokens,).

    Raises:
        SpecError: if the corpus has fewer than `length` tokens.
    """
    tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(tokens) < length:
        raise SpecError(f"the corpus has {len(tokens)} tokens, fewer than the {length} of one training sequence")
    return tokens
