"""Token files: a corpus as one array of token ids on disk. It is written once, and every rank maps it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wirecost.corpus.prepared import Windows, load_windows
from wirecost.corpus.text import read_text
from wirecost.corpus.tokenizer import make_tokenizer
from wirecost.errors import SpecError
from wirecost.storage import write_file

HEADER_BYTES = 1 << 10
"""Upper bound of the size of the header of a one-dimensional .npy file."""

_BATCH_CHARACTERS = 1 << 22
_LONGEST_PARAGRAPH = 1 << 20
"""Characters. Longer paragraphs are split, because encoding one takes an object for each character."""
Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
"""Token ids, (tokens,)."""


def prepare_tokens(corpus: str, tokenizer: str, vocab_size: int, folder: Path) -> Path:
    """Tokenizes a corpus into `folder`, unless its token file is there already.

    The tokenizer is written beside the token file as JSON, in the format of the `tokenizers` library, and the
    SHA-256 of the token file in the format of `sha256sum`. A token file without this sum, or with another one,
    is replaced.

    Args:
        corpus: see `read_text`.
        tokenizer: see `kind` of `make_tokenizer`.

    Returns:
        The path of the token file (.npy).

    Raises:
        SpecError, MissingExtraError, UnsupportedError: see `read_text` and `make_tokenizer`.
        OSError: if a file can't be written. The error names the file.
    """
    text = read_text(corpus)
    digest = hashlib.sha256(f"{tokenizer}\0{vocab_size}\0{text}".encode()).hexdigest()[:12]
    target = folder / f"{tokenizer}-{vocab_size}-{digest}.npy"
    dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
    # A token stands for at least one byte of the text.
    if _is_sound(target, HEADER_BYTES + dtype.itemsize * len(text.encode())):
        return target
    trained = make_tokenizer(tokenizer, text, vocab_size)
    # The encoding of a token takes 100 bytes and more, so it isn't kept for the whole text.
    encoded = (encoding for paragraphs in _batches(text) for encoding in trained.encode_batch(paragraphs))
    ids = np.concatenate([np.asarray(e.ids, dtype=dtype) for e in encoded if e.ids])
    folder.mkdir(parents=True, exist_ok=True)
    write_file(target.with_suffix(".tokenizer.json"), trained.to_str(pretty=True))
    header = io.BytesIO()
    # np.save(file) isn't used, because on a full disk it raises an error without an errno.
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(ids))
    write_file(target, header.getvalue(), ids.data.cast("B"))
    sha256 = hashlib.sha256(header.getvalue())
    sha256.update(ids.data)
    write_file(_sum_path(target), f"{sha256.hexdigest()}  {target.name}\n")
    return target


def _batches(text: str) -> Iterator[list[str]]:
    """Yields lists of paragraphs with about `_BATCH_CHARACTERS` characters, and splits the longest paragraphs."""
    batch: list[str] = []
    characters = 0
    for paragraph in text.split("\n\n"):
        for start in range(0, len(paragraph), _LONGEST_PARAGRAPH):
            batch.append(paragraph[start : start + _LONGEST_PARAGRAPH])
            characters += len(batch[-1])
            if characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
    yield batch


def _sum_path(tokens: Path) -> Path:
    return tokens.with_name(f"{tokens.name}.sha256")


def _is_sound(tokens: Path, most_bytes: int) -> bool:
    """Returns whether a token file exists, has at most `most_bytes`, and has the sum that was written beside
    it."""
    if not (tokens.is_file() and _sum_path(tokens).is_file()) or tokens.stat().st_size > most_bytes:
        return False
    with tokens.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with _sum_path(tokens).open("rb") as file:
        return file.read(len(digest)) == digest.encode()


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


def load_text(path: Path, length: int) -> Tokens | Windows:
    """Returns the tokens of a token file, (tokens,), or the windows of a prepared corpus.

    Raises:
        SpecError: see `load_tokens` and `load_windows`.
    """
    return load_tokens(path, length) if path.suffix == ".npy" else load_windows(path, length)
