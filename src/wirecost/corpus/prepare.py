"""Prepares a corpus: extracts the text of files, tokenizes it, and writes it as Megatron's indexed data sets."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import platform
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from wirecost import reading
from wirecost._version import __version__
from wirecost.corpus.digests import Digests
from wirecost.corpus.encoder import Encoder, Vocabulary
from wirecost.corpus.estimate import estimate_with, setup_of
from wirecost.corpus.extract import Part
from wirecost.corpus.indexed import IndexedWriter, token_type
from wirecost.corpus.manifest import (
    FILE_NAME,
    SCHEMA_VERSION,
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    load_manifest,
)
from wirecost.corpus.parts import parts
from wirecost.corpus.pool import Pool
from wirecost.corpus.prepared import WORD_STARTS
from wirecost.corpus.request import Progress, Request, Silent
from wirecost.corpus.sources import Kind, Packing, Source, check_installed, find_sources
from wirecost.corpus.titles import Titles
from wirecost.corpus.tokenize import Tokenized, is_one_document
from wirecost.corpus.train_process import Training, train
from wirecost.corpus.vocabularies import find_vocabulary
from wirecost.corpus.vocabulary_training import SENTINELS
from wirecost.errors import SpecError
from wirecost.storage import check_writable, naming, sync_directory, write_file

_LEAST_SAMPLED_PARTS = 24
"""A corpus of fewer parts is prepared in less time than an estimate would take."""
_TITLES = ".titles"
_LOCK = ".lock"
_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "<pad>", *(f"<extra_id_{n}>" for n in range(SENTINELS)))
_PACKAGES = ("tokenizers", "sentencepiece", "mwxml", "mwparserfromhell", "sentencex", "pyarrow", "numpy")
_WIKI_END_BYTES = 4096


def prepare(request: Request, progress: Progress | None = None) -> Manifest:
    """Prepares a corpus and returns its manifest.

    An interrupted run leaves complete shards, and another one with `resume` continues after them. The tokens don't
    depend on the number of processes, nor on interruptions.

    Raises:
        SpecError, MissingExtraError: before anything is written, or if a file turns out to be unreadable.
        OSError: if a file can't be written. The error names it.
    """
    progress = progress or Silent()
    sources = find_sources(request.paths)
    check_installed(sources)
    with ExitStack() as stack:
        earlier = _earlier(request)
        vocabulary = None if earlier is not None else find_vocabulary(request.tokenizer)
        try:
            request.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(
                f"--out {request.out}: can't be made: {error.strerror}; choose another --out"
            ) from error
        check_writable(request.out)
        stack.enter_context(_locked(request.out))
        manifest = _fresh(request, sources, vocabulary)
        if earlier is not None:
            if (difference := earlier.same_corpus(manifest)) is not None:
                raise SpecError(f"{request.out}: --resume: it was begun with {difference}; choose another --out")
            if earlier.complete:
                return earlier
            manifest = earlier
        vocabulary = _settled_vocabulary(request, sources, manifest, vocabulary, progress)
        return _Run(request, sources, manifest, vocabulary, progress).run(stack)


def _earlier(request: Request) -> Manifest | None:
    """Returns the manifest of an interrupted or complete run that is to be resumed.

    Raises:
        SpecError: if the folder is in use in another way.
    """
    if request.out.exists() and not request.out.is_dir():
        raise SpecError(f"{request.out}: is a file; --out names a folder")
    if (request.out / FILE_NAME).is_file():
        if not request.resume:
            raise SpecError(f"{request.out}: holds a corpus already; go on with --resume, or choose another --out")
        return load_manifest(request.out)
    own = (_LOCK, ".probe", f".{FILE_NAME}.partial")
    if request.out.is_dir() and any(path.name not in own for path in request.out.iterdir()):
        raise SpecError(f"{request.out}: contains other files; choose an empty folder or a new one as --out")
    return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder, so that no second run writes into it."""
    path = folder / _LOCK
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpecError(f"{folder}: another run is writing into it") from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _fresh(request: Request, sources: Sequence[Source], vocabulary: Vocabulary | None) -> Manifest:
    options = request.options
    settings = {
        "tokenizer": request.tokenizer,
        "vocab_size": request.vocab_size,
        "sentences": request.sentences,
        "end_documents": request.end_documents,
        "namespaces": list(options.namespaces),
        "text_documents": options.text_documents,
        "text_key": options.text_key,
        "shard_tokens": request.shard_tokens,
    }
    versions = {"wirecost": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    entries = [SourceEntry.of(source) for source in sources]
    kind = "trained" if vocabulary is None else "published"
    entry = TokenizerEntry(request.tokenizer, kind, "", "", "", 0)
    return Manifest(SCHEMA_VERSION, False, entries, entry, settings, versions, "")


def _settled_vocabulary(
    request: Request,
    sources: Sequence[Source],
    manifest: Manifest,
    vocabulary: Vocabulary | None,
    progress: Progress,
) -> Vocabulary:
    """Returns the tokenizer of a corpus, after it was written into the folder and the manifest."""
    entry = manifest.tokenizer
    if entry.file:
        path = request.out / entry.file
        content = reading.read_bytes(path, most_bytes=1 << 28, what="tokenizer", pipes=False, error=SpecError)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise SpecError(f"{path}: is not the tokenizer that the corpus was begun with")
        return Vocabulary(entry.name, entry.origin, entry.file, content)
    if vocabulary is None:
        progress.stage("training a tokenizer")
        training = Training(request.tokenizer, tuple(sources), request.options, request.vocab_size)
        vocabulary = train(training, request.record_limit_s)
    encoder = Encoder(vocabulary)
    write_file(request.out / vocabulary.file_name, vocabulary.content)
    write_file(request.out / WORD_STARTS, encoder.word_starts().astype(np.uint8).tobytes())
    entry.origin, entry.file, entry.sha256 = vocabulary.origin, vocabulary.file_name, vocabulary.digest
    entry.size, entry.end = encoder.size, encoder.end
    entry.special = {name: number for name in _SPECIAL if (number := encoder.token_id(name)) is not None}
    manifest.dtype = token_type(encoder.size).name
    manifest.save(request.out)
    return vocabulary


class _Run:
    """Writes the shards of a corpus."""

    def __init__(
        self,
        request: Request,
        sources: Sequence[Source],
        manifest: Manifest,
        vocabulary: Vocabulary,
        progress: Progress,
    ) -> None:
        self.request, self.sources, self.manifest = request, sources, manifest
        self.vocabulary, self.progress = vocabulary, progress
        self.total = sum(source.size for source in sources)
        self.dtype = np.dtype(manifest.dtype).newbyteorder("<")
        self.titles = Titles()
        self.new_titles = array("Q")
        self.writer: IndexedWriter | None = None
        self.documents = sum(shard.documents for shard in manifest.shards)

    def run(self, stack: ExitStack) -> Manifest:
        """Writes the shards that are missing, and completes the manifest."""
        manifest = self.manifest
        source, start = 0, 0
        if manifest.shards:
            source, start = manifest.shards[-1].next_source, manifest.shards[-1].next_start
        self._restore_titles()
        digests = stack.enter_context(Digests(self.sources))
        setup = setup_of(self.request, self.sources, self.vocabulary)
        pool = stack.enter_context(Pool(setup, self.request.workers, record_limit_s=self.request.record_limit_s))
        stack.callback(self._discard)
        parts_left = sum(s.size // s.chunk_bytes for s in self.sources[source:])
        if parts_left >= _LEAST_SAMPLED_PARTS and not manifest.shards:
            self.progress.stage("estimating the time")
            self.progress.estimated(estimate_with(pool, self.sources, self.request))
        self._write(pool, source, start)
        for entry, source_file in zip(manifest.sources, self.sources, strict=True):
            entry.sha256 = digests.of(source_file)
        self._note_missing_ends()
        if not manifest.tokens:
            raise SpecError(f"{self.sources[0].path}: no text was found in it ({_why_empty(manifest)})")
        manifest.complete = True
        manifest.save(self.request.out)
        (self.request.out / _TITLES).unlink(missing_ok=True)
        sync_directory(self.request.out)
        return manifest

    def _write(self, pool: Pool, source: int, start: int) -> None:
        self.progress.stage("")
        begun_s, begun_bytes = time.monotonic(), self._bytes_before(source, start)
        last: Part | None = None
        for part, result in pool.results(parts(self.sources, self.request.options, source, start)):
            if last is not None and self.writer is not None:
                # Shards end between parts, so that they don't depend on the number of processes.
                if last.source != part.source:
                    self.writer.end_document()
                if self.writer.tokens >= self.request.shard_tokens:
                    self._end_shard(part.source, part.start)
            self._add(part, result)
            last = part
            done = self._bytes_before(part.source, 0) + part.consumed
            passed_s = time.monotonic() - begun_s
            share = (done - begun_bytes) / max(self.total - begun_bytes, 1)
            left_s = passed_s * (1 - share) / share if share > 0 and passed_s > 1 else None
            self.progress.advanced(done, self.total, self.documents, self._tokens(), left_s)
        if self.writer is not None:
            self._end_shard(len(self.sources), 0)

    def _bytes_before(self, source: int, start: int) -> int:
        before = sum(s.size for s in self.sources[:source])
        return before + (start if source < len(self.sources) and self.sources[source].seekable else 0)

    def _tokens(self) -> int:
        return self.manifest.tokens + (self.writer.tokens if self.writer is not None else 0)

    def _add(self, part: Part, result: Tokenized) -> None:
        """Appends the documents of a part, except for those with the title of an earlier one."""
        self.manifest.add(part.source, result.counts)
        counts = self.manifest.counts
        counts["characters"] = counts.get("characters", 0) + result.characters
        if self.writer is None:
            self.writer = IndexedWriter(self.request.out / f"text-{len(self.manifest.shards):05d}", self.dtype)
        ends = np.cumsum(result.lengths, dtype=np.int64)
        first = 0
        for count, title_hash in zip(result.sequences.tolist(), result.title_hashes.tolist(), strict=True):
            last = first + count
            if title_hash and not self.titles.add(title_hash):
                counts["duplicates"] = counts.get("duplicates", 0) + 1
            elif count:
                if title_hash:
                    self.new_titles.append(title_hash)
                begin = int(ends[first - 1]) if first else 0
                self.writer.add(result.tokens[begin : int(ends[last - 1])], result.lengths[first:last])
                if not is_one_document(self.sources[part.source], self.request.options):
                    self.writer.end_document()
                    self.documents += 1
            first = last

    def _end_shard(self, next_source: int, next_start: int) -> None:
        """Completes a shard, and makes it known."""
        writer, self.writer = self.writer, None
        assert writer is not None
        if not writer.tokens:
            writer.discard()
            return
        sha256 = writer.finish()
        with naming(self.request.out / _TITLES), (self.request.out / _TITLES).open("ab") as file:
            self.new_titles.tofile(file)
            file.flush()
            os.fsync(file.fileno())
        self.manifest.counts["titles"] = self.manifest.counts.get("titles", 0) + len(self.new_titles)
        del self.new_titles[:]
        sync_directory(self.request.out)
        self.manifest.shards.append(
            ShardEntry(
                writer.prefix.name,
                writer.tokens,
                writer.sequences,
                writer.documents,
                sha256,
                next_source,
                next_start,
            )
        )
        self.documents = sum(shard.documents for shard in self.manifest.shards)
        self.manifest.save(self.request.out)

    def _restore_titles(self) -> None:
        """Reads the titles of the complete shards. What a later, incomplete shard wrote behind them is removed."""
        path = self.request.out / _TITLES
        count = self.manifest.counts.get("titles", 0)
        if count and path.is_file() and path.stat().st_size >= 8 * count:
            os.truncate(path, 8 * count)
            self.titles = Titles(np.fromfile(path, np.uint64))
        elif count:
            raise SpecError(f"{path}: is missing or too short; prepare the corpus again in another --out")
        else:
            path.unlink(missing_ok=True)

    def _discard(self) -> None:
        if self.writer is not None:
            self.writer.discard()

    def _note_missing_ends(self) -> None:
        """Notes which dumps end without the end of their outermost element: they were cut off."""
        for entry, source in zip(self.manifest.sources, self.sources, strict=True):
            if source.kind is not Kind.WIKI or source.packing is not Packing.NONE:
                continue
            with reading.open_file(source.path, pipes=False, error=SpecError) as file:
                start = os.lseek(file.fileno(), max(0, source.size - _WIKI_END_BYTES), os.SEEK_SET)
                tail = file.read(source.size - start)
            if b"</mediawiki>" not in tail:
                from dataclasses import asdict

                from wirecost.corpus.records import Losses

                entry.losses = {**(entry.losses or asdict(Losses())), "cut_off": True}


def _why_empty(manifest: Manifest) -> str:
    met = [f"{value} {name.replace('_', ' ')}" for name, value in sorted(manifest.counts.items()) if value]
    return ", ".join(met) or "nothing was met"
