"""Computes the SHA-256 of files in a thread, while they are prepared."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from wirecost import reading
from wirecost.corpus.sources import Source
from wirecost.errors import SpecError, WirecostError


class Digests:
    """The SHA-256 of files. Its context starts and ends the thread."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._digests: dict[Path, str] = {}
        self._error: WirecostError | OSError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Digests:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for source in self._sources:
                digest = hashlib.sha256()
                with reading.open_file(source.path, pipes=False, error=SpecError) as file:
                    while (data := file.read(1 << 20)) and not self._ended.is_set():
                        digest.update(data)
                self._digests[source.path] = digest.hexdigest()
        except (WirecostError, OSError) as error:
            self._error = error

    def of(self, source: Source) -> str:
        """Returns the digest of a file, when it is known."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._digests[source.path]
