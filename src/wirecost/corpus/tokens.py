"""A corpus as one array of token ids on disk, made once and mapped by every rank."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wirecost.corpus.text import read_text
from wirecost.corpus.tokenizer import make_tokenizer
from wirecost.errors import SpecError
from wirecost.storage import write_file

HEADER_BYTES = 1 << 10
"""More than the header of a .npy file of one dimension takes."""

_BATCH_CHARACTERS = 1 << 22
_LONGEST_PARAGRAPH = 1 << 20
"""Characters. A paragraph is encoded in one call, which holds an object for each of them."""
Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def prepare_tokens(corpus: str, tokenizer: str, vocab_size: int, folder: Path) -> Path:
    """Tokenizes a corpus into `folder` unless that is done already; returns the .npy file's path.

    Beside it lie the tokenizer as JSON (the `tokenizers` library's format) and the tokens' SHA-256 (`sha256sum`'s
    format). Tokens that don't have that sum, or have none beside them, are made again.

    Raises:
        SpecError, UnsupportedError: see `read_text` and `make_tokenizer`.
        OSError: naming the file, if one can't be written.
    """
    text = read_text(corpus)
    digest = hashlib.sha256(f"{tokenizer}\0{vocab_size}\0{text}".encode()).hexdigest()[:12]
    target = folder / f"{tokenizer}-{vocab_size}-{digest}.npy"
    dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
    # No token stands for less than a byte of the text.
    if _is_sound(target, HEADER_BYTES + dtype.itemsize * len(text.encode())):
        return target
    made = make_tokenizer(tokenizer, text, vocab_size)
    # A token's description takes 100 bytes and more: it is not kept for the whole text.
    encoded = (one for paragraphs in _batches(text) for one in made.encode_batch(paragraphs))
    ids = np.concatenate([np.asarray(e.ids, dtype=dtype) for e in encoded if e.ids])
    folder.mkdir(parents=True, exist_ok=True)
    write_file(target.with_suffix(".tokenizer.json"), made.to_str(pretty=True))
    header = io.BytesIO()
    # Not np.save(file): on a full disk that raises an error without a number.
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(ids))
    write_file(target, header.getvalue(), ids.data.cast("B"))
    sha256 = hashlib.sha256(header.getvalue())
    sha256.update(ids.data)
    write_file(_sum_path(target), f"{sha256.hexdigest()}  {target.name}\n")
    return target


def _batches(text: str) -> Iterator[list[str]]:
    """Yields lists of the text's paragraphs with about `_BATCH_CHARACTERS`, none above `_LONGEST_PARAGRAPH`."""
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
    """Whether a token file of at most so many bytes is there and is what was written."""
    if not (tokens.is_file() and _sum_path(tokens).is_file()) or tokens.stat().st_size > most_bytes:
        return False
    with tokens.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with _sum_path(tokens).open("rb") as file:
        return file.read(len(digest)) == digest.encode()


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
