"""Turns the tokens of a prepared corpus back into text."""

from __future__ import annotations

from pathlib import Path

from wirecost import reading
from wirecost.corpus.encoder import Encoder, Vocabulary
from wirecost.corpus.indexed import read_indexed
from wirecost.corpus.manifest import Manifest
from wirecost.corpus.vocabularies import MOST_FILE_BYTES
from wirecost.errors import SpecError


def decode_start(folder: Path, manifest: Manifest, count: int) -> str:
    """Returns the text of the first `count` tokens of a corpus.

    Raises:
        SpecError: if the tokenizer or the first shard can't be read.
    """
    if not manifest.shards:
        return ""
    entry = manifest.tokenizer
    content = reading.read_bytes(
        folder / entry.file, most_bytes=MOST_FILE_BYTES, what="tokenizer", pipes=False, error=SpecError
    )
    encoder = Encoder(Vocabulary(entry.name, str(folder / entry.file), entry.file, content))
    return encoder.decode(read_indexed(folder / manifest.shards[0].name).tokens[:count].tolist())
