"""Writes the shards of a corpus, with what an interrupted run needs to go on."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from wirecost import reading
from wirecost.corpus.digests import Digests
from wirecost.corpus.encoder import Vocabulary
from wirecost.corpus.estimate import estimate_with, setup_of
from wirecost.corpus.extract import Part
from wirecost.corpus.indexed import IndexedWriter
from wirecost.corpus.manifest import Manifest, ShardEntry
from wirecost.corpus.parts import parts
from wirecost.corpus.pool import Pool
from wirecost.corpus.request import Progress, Request
from wirecost.corpus.sources import Kind, Packing, Source
from wirecost.corpus.titles import Titles
from wirecost.corpus.tokenize import Tokenized, is_one_document
from wirecost.errors import SpecError
from wirecost.storage import naming, sync_directory

_LEAST_SAMPLED_PARTS = 24
"""A corpus of fewer parts is prepared in less time than an estimate would take."""
_TITLES = ".titles"
_WIKI_END_BYTES = 4096


class ShardsRun:
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
