"""The manifest of a prepared corpus: what it was made from, and what it contains."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from wirecost import reading
from wirecost.corpus.extract import Counts
from wirecost.corpus.records import Losses
from wirecost.corpus.sources import Source
from wirecost.errors import SpecError
from wirecost.storage import write_file

FILE_NAME = "manifest.json"
SCHEMA_VERSION = 1
_PROBE_BYTES = 1 << 20


class SourceEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A file that the corpus was made from.

    Attributes:
        probe: SHA-256 of its size, first and last MiB, with which it is recognised quickly.
        sha256: of the whole file, once the corpus is complete.
        losses: what couldn't be read from it.
    """

    path: str
    kind: str
    packing: str
    size: int
    probe: str
    sha256: str | None = None
    losses: dict[str, Any] = {}

    @classmethod
    def of(cls, source: Source) -> SourceEntry:
        """Returns the entry of a file."""
        digest = hashlib.sha256(str(source.size).encode())
        with reading.open_file(source.path, pipes=False, error=SpecError) as file:
            digest.update(file.read(_PROBE_BYTES))
        with reading.open_file(source.path, pipes=False, error=SpecError) as file:
            os.lseek(file.fileno(), max(0, source.size - _PROBE_BYTES), os.SEEK_SET)
            digest.update(file.read(_PROBE_BYTES))
        path = str(source.path.absolute())
        return cls(path, source.kind.value, source.packing.value, source.size, digest.hexdigest())


class TokenizerEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The tokenizer, which lies beside the corpus.

    Attributes:
        kind: `published`, or `trained` on this corpus.
        size: number of token ids.
        end: id of the token that ends a document.
        special: ids of the special tokens of BERT and T5, by name.
    """

    name: str
    kind: str
    origin: str
    file: str
    sha256: str
    size: int
    end: int | None = None
    special: dict[str, int] = {}


class ShardEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One indexed data set of Megatron.

    Attributes:
        name: the name of its files without .bin and .idx.
        sha256: of its files by their names.
        next_source, next_start: the file and the place in it at which the next shard begins.
    """

    name: str
    tokens: int
    sequences: int
    documents: int
    sha256: dict[str, str]
    next_source: int
    next_start: int


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Everything that is known of a prepared corpus.

    Attributes:
        settings: what decides which tokens are written.
        versions: of the programs and libraries that wrote it.
        counts: what was met in all files: see the page on training data.
    """

    schema_version: int
    complete: bool
    sources: list[SourceEntry]
    tokenizer: TokenizerEntry
    settings: dict[str, Any]
    versions: dict[str, str]
    dtype: str
    shards: list[ShardEntry] = []
    counts: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    def add(self, source: int, counts: Counts) -> None:
        """Adds the counts of a part."""
        for name, value in asdict(counts).items():
            if name != "losses":
                self.counts[name] = self.counts.get(name, 0) + value
        entry = self.sources[source]
        if counts.losses == Losses():
            return
        losses: dict[str, Any] = entry.losses or asdict(Losses())
        for name, value in asdict(counts.losses).items():
            if isinstance(value, bool):
                losses[name] = losses[name] or value
            else:
                losses[name] = losses[name] + value
        losses["places"] = losses["places"][:10]
        entry.losses = losses

    def save(self, folder: Path) -> None:
        """Writes the manifest into a folder."""
        write_file(folder / FILE_NAME, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    def same_corpus(self, other: Manifest) -> str | None:
        """Returns what differs between this corpus and one that would be written into the same folder."""
        mine = [(entry.probe, entry.size) for entry in self.sources]
        if mine != [(entry.probe, entry.size) for entry in other.sources]:
            return "other files"
        for name, value in other.settings.items():
            if self.settings.get(name) != value:
                return f"{name} {self.settings.get(name)!r}"
        return None


def load_manifest(folder: Path) -> Manifest:
    """Returns the manifest of a folder.

    Raises:
        SpecError: if the folder has no valid one.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise SpecError(
            f"{folder}: is no prepared corpus: it contains no {FILE_NAME} (wirecost data prepare writes it)"
        )
    try:
        manifest = msgspec.json.decode(reading.read_result(path, SpecError), type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SpecError(f"{path}: is no manifest of a prepared corpus: {str(error)[:200]}") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise SpecError(f"{path}: schema version {manifest.schema_version}; this wirecost reads {SCHEMA_VERSION}")
    names = [shard.name for shard in manifest.shards] + [manifest.tokenizer.file]
    if any(Path(name).name != name or name in ("", ".", "..") for name in names):
        raise SpecError(f"{path}: names a file outside its folder")
    if any(min(shard.tokens, shard.sequences, shard.documents) < 0 for shard in manifest.shards):
        raise SpecError(f"{path}: a shard has a negative number of tokens")
    return manifest
