"""A random order of many items that takes no memory: each place is computed when it is needed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_ROUNDS = 6
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns hashes of 64-bit numbers: the finalizer of SplitMix64 (Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def hashed(*numbers: int) -> int:
    """Returns a 64-bit hash of numbers."""
    state = 0
    for number in numbers:
        state = (state + _GOLDEN + number) & _MASK
        state = ((state ^ state >> 30) * int(_FIRST)) & _MASK
        state = ((state ^ state >> 27) * int(_SECOND)) & _MASK
        state ^= state >> 31
    return state


def shuffled(places: npt.ArrayLike, count: int, *key: int) -> npt.NDArray[np.int64]:
    """Returns which items stand at `places` in a random order of `count` items.

    It is a Feistel network (Luby & Rackoff 1988) whose halves are the row and the column of a table with hardly
    more than `count` cells (Black & Rogaway 2002, section 5). A result that is no item is put in again until it is
    one.

    Args:
        places: numbers from 0 to count - 1.
        key: numbers that select the order.
    """
    rows = math.isqrt(count - 1) + 1
    columns = -(-count // rows)
    sizes = np.uint64(rows), np.uint64(columns)
    keys = [np.uint64(hashed(round_, *key)) for round_ in range(_ROUNDS)]
    values = np.array(places, dtype=np.uint64, ndmin=1)
    outside = np.arange(len(values))
    while len(outside):
        row, column = np.divmod(values[outside], sizes[1])
        for number, key_ in enumerate(keys):
            if number % 2:
                column = (column + _mixed(row + key_) % sizes[1]) % sizes[1]
            else:
                row = (row + _mixed(column + key_) % sizes[0]) % sizes[0]
        values[outside] = row * sizes[1] + column
        outside = outside[values[outside] >= count]
    return values.astype(np.int64)
