"""Megatron's indexed data set: token ids in a .bin file, and the lengths of its sequences in an .idx file.

The index contains, little-endian and without padding: the magic `MMIDIDX\\0\\0`, the version 1 (uint64), the code
of the ids' type (uint8), the numbers of sequences and of document boundaries (uint64 each), the length of each
sequence in tokens (int32), its first byte in the .bin file (int64), and the number of the first sequence of each
document (int64), with the number of sequences behind the last. Source:
`megatron/core/datasets/indexed_dataset.py` of Megatron-Core 0.16.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from wirecost.errors import SpecError
from wirecost.storage import naming, write_file

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_INTEGER_CODES = (1, 2, 3, 4, 5, 8)
LARGEST_UINT16 = 65500
"""Megatron stores vocabularies below this size in 16 bits."""


def token_type(vocabulary: int) -> np.dtype:
    """Returns the type of ids that Megatron chooses for a number of tokens."""
    return np.dtype("<u2" if vocabulary < LARGEST_UINT16 else "<i4")


def _code(dtype: np.dtype) -> int:
    return next(code for code, name in _TYPES.items() if np.dtype(name) == dtype)


class IndexedWriter:
    """Writes one data set. Its files have their names only once they are complete and durable.

    Args:
        prefix: path of the files without .bin and .idx.
    """

    def __init__(self, prefix: Path, dtype: np.dtype) -> None:
        self.prefix = prefix
        self.dtype = dtype
        self.tokens = 0
        self._lengths = array("i")
        self._documents = array("q", [0])
        self._digest = hashlib.sha256()
        self._partial = prefix.with_name(f".{prefix.name}.bin.partial")
        self._file: BinaryIO = self._partial.open("wb")

    @property
    def documents(self) -> int:
        """Number of documents that are complete."""
        return len(self._documents) - 1

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self._lengths)

    def add(self, tokens: npt.NDArray[np.integer], lengths: npt.NDArray[np.int32]) -> None:
        """Appends sequences, whose ids follow each other in `tokens`."""
        data = tokens.astype(self.dtype, copy=False).tobytes()
        with naming(self._partial):
            self._file.write(data)
        self._digest.update(data)
        self._lengths.extend(lengths.tolist())
        self.tokens += len(tokens)

    def end_document(self) -> None:
        """Ends a document, unless no sequence was added since the last one."""
        if self._documents[-1] != len(self._lengths):
            self._documents.append(len(self._lengths))

    def finish(self) -> dict[str, str]:
        """Completes the files.

        Returns:
            The SHA-256 of each file by its name.
        """
        self.end_document()
        with naming(self._partial):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        lengths = np.frombuffer(self._lengths, dtype=np.int32) if self._lengths else np.empty(0, np.int32)
        pointers = np.zeros(len(lengths), dtype="<i8")
        np.cumsum(lengths[:-1], out=pointers[1:], dtype=np.int64)
        pointers *= self.dtype.itemsize
        header = _HEADER.pack(MAGIC, 1, _code(self.dtype), len(lengths), len(self._documents))
        content = (
            header, lengths.astype("<i4").tobytes(), pointers.tobytes(), np.array(self._documents, "<i8").tobytes()
        )  # fmt: skip
        index = Path(f"{self.prefix}.idx")
        write_file(index, *content)
        self._partial.rename(f"{self.prefix}.bin")
        digest = hashlib.sha256()
        for piece in content:
            digest.update(piece)
        return {f"{self.prefix.name}.bin": self._digest.hexdigest(), index.name: digest.hexdigest()}

    def discard(self) -> None:
        """Closes and removes what was written, if it isn't complete."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class Indexed:
    """A data set whose files are mapped into memory.

    Attributes:
        tokens: ids, (tokens,).
        lengths: number of tokens of each sequence, (sequences,).
        pointers: first byte of each sequence in the .bin file, (sequences,).
        documents: first sequence of each document, and the number of sequences, (documents + 1,).
    """

    tokens: npt.NDArray[np.integer]
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


def read_indexed(prefix: Path) -> Indexed:
    """Maps a data set of Megatron's or ours into memory.

    Raises:
        SpecError: if a file is missing, or the index doesn't fit its own size or that of the .bin file.
    """
    index, data = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    for path in (index, data):
        if not path.is_file():
            raise SpecError(f"{path}: no such file; an indexed data set has a .bin and an .idx file")
    size = index.stat().st_size
    if size < _HEADER.size:
        raise SpecError(f"{index}: is too short to be an index of Megatron's")
    with index.open("rb") as file:
        magic, version, code, sequences, boundaries = _HEADER.unpack(file.read(_HEADER.size))
    if magic != MAGIC:
        raise SpecError(f"{index}: is no index of Megatron's: it doesn't begin with MMIDIDX")
    if version != 1 or code not in _INTEGER_CODES:
        raise SpecError(
            f"{index}: version {version} with ids of type {code}; known are version 1 and types 1-5, 8"
        )
    dtype = np.dtype(_TYPES[code])
    # Data sets with several modalities have another byte for each sequence at the end.
    expected = _HEADER.size + 12 * sequences + 8 * boundaries
    if size not in (expected, expected + sequences):
        raise SpecError(f"{index}: has {size} bytes, but {sequences} sequences need {expected}: damaged")
    mapped = np.memmap(index, mode="r", dtype=np.uint8)
    first = _HEADER.size
    lengths = np.frombuffer(mapped, "<i4", sequences, first)
    pointers = np.frombuffer(mapped, "<i8", sequences, first + 4 * sequences)
    documents = np.frombuffer(mapped, "<i8", boundaries, first + 12 * sequences)
    size = data.stat().st_size
    tokens = (
        np.memmap(data, mode="r", dtype=dtype, shape=(size // dtype.itemsize,)) if size else np.empty(0, dtype)
    )
    if sequences:
        end = int(pointers[-1]) + int(lengths[-1]) * dtype.itemsize
        if size % dtype.itemsize or end != size or int(pointers[0]) != 0:
            raise SpecError(f"{data}: has {size} bytes, but its index ends at {end}: damaged")
    elif size:
        raise SpecError(f"{data}: has {size} bytes, but its index has no sequences: damaged")
    return Indexed(tokens, lengths, pointers, documents)
