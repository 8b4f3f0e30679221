"""Rows of integers, packed into columns as they come."""

from __future__ import annotations

import numpy as np

from wirecost.trace.recorded import Int64

_PACKED_ROWS = 1 << 16


class PackedRows:
    """Rows of integers, packed as they come."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._open: list[tuple[int, ...]] = []
        self._packed: list[Int64] = []

    def add(self, *row: int) -> None:
        """Adds a row."""
        self._open.append(row)
        if len(self._open) >= _PACKED_ROWS:
            self._pack()

    def _pack(self) -> None:
        self._packed.append(np.array(self._open, dtype=np.int64).reshape(-1, self._width).T.copy())
        self._open = []

    def columns(self) -> Int64:
        """Returns the rows as columns: int64 (width, rows)."""
        self._pack()
        return np.concatenate(self._packed, axis=1)
