"""Prepares a corpus: extracts the text of files, tokenizes it, and writes it as Megatron's indexed data sets."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from wirecost import reading
from wirecost._version import __version__
from wirecost.corpus.encoder import Encoder, Vocabulary
from wirecost.corpus.indexed import token_type
from wirecost.corpus.manifest import (
    FILE_NAME,
    SCHEMA_VERSION,
    Manifest,
    SourceEntry,
    TokenizerEntry,
    load_manifest,
)
from wirecost.corpus.prepared import WORD_STARTS
from wirecost.corpus.request import Progress, Request, Silent
from wirecost.corpus.shards import ShardsRun
from wirecost.corpus.sources import Source, check_installed, find_sources
from wirecost.corpus.train_process import Training, train
from wirecost.corpus.vocabularies import find_vocabulary
from wirecost.corpus.vocabulary_training import SENTINELS
from wirecost.errors import SpecError
from wirecost.storage import check_writable, write_file

_LOCK = ".lock"
_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "<pad>", *(f"<extra_id_{n}>" for n in range(SENTINELS)))
_PACKAGES = ("tokenizers", "sentencepiece", "mwxml", "mwparserfromhell", "sentencex", "pyarrow", "numpy")


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
        return ShardsRun(request, sources, manifest, vocabulary, progress).run(stack)


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
