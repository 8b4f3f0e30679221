"""Remembers the titles of millions of pages in a few bytes each."""

from __future__ import annotations

import numpy as np

_RECENT = 100_000


class Titles:
    """A set of 64-bit hashes, which takes 8 bytes for each."""

    def __init__(self, hashes: np.ndarray | None = None) -> None:
        self._sorted = np.unique(hashes) if hashes is not None else np.empty(0, np.uint64)
        self._recent: set[int] = set()

    def add(self, title_hash: int) -> bool:
        """Adds a hash. Returns whether it is new."""
        if title_hash in self._recent:
            return False
        at = int(np.searchsorted(self._sorted, np.uint64(title_hash)))
        if at < len(self._sorted) and int(self._sorted[at]) == title_hash:
            return False
        self._recent.add(title_hash)
        if len(self._recent) >= _RECENT:
            self._sorted = np.union1d(self._sorted, np.fromiter(self._recent, np.uint64))
            self._recent.clear()
        return True
