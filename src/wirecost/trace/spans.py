"""Spans of time kept small: a long trace has hundreds of thousands, and a thousand of them are read together."""

from __future__ import annotations

import msgspec
import numpy as np
import zstandard

from wirecost.breakdown.intervals import EMPTY, Intervals

MOST_SPANS = 1 << 26
LARGEST_NS = 1 << 62
_LEVEL = 1
_WIDTHS = {4: np.dtype("<u4"), 8: np.dtype("<u8")}


class Spans(msgspec.Struct, frozen=True):
    """A merged set of intervals, as compressed lengths and gaps.

    Attributes:
        first_ns: start of the first one.
        count: number of intervals.
        width: bytes of a length or gap.
        packed: the lengths and gaps in turn, in ns, compressed by zstd.
    """

    first_ns: int
    count: int
    width: int
    packed: bytes

    @staticmethod
    def of(intervals: Intervals) -> Spans:
        """Returns the spans of a merged set of intervals."""
        if not len(intervals):
            return Spans(0, 0, 4, b"")
        steps = np.diff(intervals.ravel())
        width = 4 if int(steps.max()) < 1 << 32 else 8
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(steps.astype(_WIDTHS[width]).tobytes())
        return Spans(int(intervals[0, 0]), len(intervals), width, packed)

    def intervals(self) -> Intervals:
        """Returns the merged set of intervals in ns.

        Raises:
            ValueError: if the content is damaged.
            zstandard.ZstdError: if it can't be decompressed.
        """
        if not self.count:
            return EMPTY
        if self.width not in _WIDTHS or not 0 < self.count <= MOST_SPANS:
            raise ValueError("spans of time have an impossible form")
        size = (2 * self.count - 1) * self.width
        if zstandard.frame_content_size(self.packed) != size:
            raise ValueError("spans of time have another number")
        steps = np.frombuffer(zstandard.ZstdDecompressor().decompress(self.packed), dtype=_WIDTHS[self.width])
        if abs(self.first_ns) > LARGEST_NS or float(steps.sum(dtype=np.float64)) > LARGEST_NS:
            raise ValueError("spans of time are out of range")
        times = np.empty(2 * self.count, dtype=np.int64)
        times[0] = self.first_ns
        times[1:] = steps
        return np.cumsum(times, out=times).reshape(-1, 2)

    def shifted(self, by_ns: int) -> Spans:
        """Returns the spans at times that are later by `by_ns`."""
        return msgspec.structs.replace(self, first_ns=self.first_ns + by_ns) if self.count else self
