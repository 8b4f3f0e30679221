from __future__ import annotations

import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus.indexed import IndexedWriter, read_indexed, token_type
from wirecost.errors import SpecError

DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(0, 60_000), min_size=1, max_size=6), min_size=1, max_size=4), max_size=6
)


def write(prefix: Path, documents: list[list[list[int]]], dtype: np.dtype) -> dict[str, str]:
    writer = IndexedWriter(prefix, dtype)
    for document in documents:
        writer.add(
            np.array([t for s in document for t in s], np.int32), np.array([len(s) for s in document], np.int32)
        )
        writer.end_document()
    return writer.finish()


@given(DOCUMENTS, st.sampled_from([60_001, 100_000]))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, documents, vocabulary: int) -> None:
    prefix = tmp_path_factory.mktemp("d") / "x"
    write(prefix, documents, token_type(vocabulary))
    read = read_indexed(prefix)
    assert read.tokens.dtype == token_type(vocabulary)
    assert read.tokens.tolist() == [t for d in documents for s in d for t in s]
    assert read.lengths.tolist() == [len(s) for d in documents for s in d]
    assert np.diff(read.documents).tolist() == [len(d) for d in documents]


def test_each_byte_of_the_index_is_where_megatron_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "x", [[[1, 2], [3]], [[4]]], np.dtype("<u2"))
    expected = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 3, 3)
    expected += struct.pack("<3i", 2, 1, 1) + struct.pack("<3q", 0, 4, 6) + struct.pack("<3q", 0, 2, 3)
    assert (tmp_path / "x.idx").read_bytes() == expected
    assert (tmp_path / "x.bin").read_bytes() == struct.pack("<4H", 1, 2, 3, 4)


def test_megatron_reads_ours_and_we_read_megatrons(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="Megatron-Core isn't installed"
        )
    torch = pytest.importorskip("torch")
    documents = [[[1, 2, 3], [4]], [[60_000, 5]], [[6]]]
    for dtype in (np.uint16, np.int32):
        ours, theirs = tmp_path / f"ours-{dtype.__name__}", tmp_path / f"theirs-{dtype.__name__}"
        write(ours, documents, np.dtype(dtype))
        read = indexed.IndexedDataset(str(ours))
        assert [read[n].tolist() for n in range(len(read))] == [s for d in documents for s in d]
        assert read.document_indices.tolist() == [0, 2, 3, 4]
        builder = indexed.IndexedDatasetBuilder(f"{theirs}.bin", dtype=dtype)
        for document in documents:
            builder.add_document(torch.tensor([t for s in document for t in s]), [len(s) for s in document])
        builder.finalize(f"{theirs}.idx")
        for suffix in (".bin", ".idx"):
            assert Path(f"{ours}{suffix}").read_bytes() == Path(f"{theirs}{suffix}").read_bytes()
        assert read_indexed(theirs).lengths.tolist() == [3, 1, 2, 1]


def damage(prefix: Path, kind: str) -> None:
    index, data = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    content = index.read_bytes()
    if kind == "magic":
        index.write_bytes(b"X" + content[1:])
    elif kind == "version":
        index.write_bytes(content[:9] + struct.pack("<Q", 2) + content[17:])
    elif kind == "floats":
        index.write_bytes(content[:17] + b"\x07" + content[18:])
    elif kind == "short":
        index.write_bytes(content[:20])
    elif kind == "cut":
        index.write_bytes(content[:-1])
    elif kind == "huge":
        index.write_bytes(content[:18] + struct.pack("<Q", 1 << 62) + content[26:])
    elif kind == "tokens":
        data.write_bytes(data.read_bytes()[:-2])
    else:
        data.unlink()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("magic", "doesn't begin with MMIDIDX"),
        ("version", "version 2"),
        ("floats", "type 7"),
        ("short", "too short"),
        ("cut", "damaged"),
        ("huge", "damaged"),
        ("tokens", "damaged"),
        ("missing", "no such file"),
    ],
)
def test_a_damaged_data_set_is_refused(tmp_path: Path, kind: str, message: str) -> None:
    write(tmp_path / "x", [[[1, 2], [3]], [[4]]], np.dtype("<u2"))
    damage(tmp_path / "x", kind)
    with pytest.raises(SpecError, match=message):
        read_indexed(tmp_path / "x")


def test_an_unfinished_data_set_has_no_name_yet(tmp_path: Path) -> None:
    writer = IndexedWriter(tmp_path / "x", np.dtype("<u2"))
    writer.add(np.array([1], np.int32), np.array([1], np.int32))
    assert not (tmp_path / "x.bin").exists()
    writer.discard()
    assert list(tmp_path.iterdir()) == []
