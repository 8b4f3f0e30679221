"""Converts a counter's readings to totals over wraps, resets and the absence of its device."""

from __future__ import annotations

from dataclasses import dataclass

# A full 32-bit PortCounters register stays at this value until it is reset (InfiniBand, 16.1.3.5).
_FULL_32 = 2**32 - 1


@dataclass(slots=True)
class Counter:
    """One counter. `total` is its count since the first reading, without unknown parts."""

    total: int = 0
    note: str | None = None  # about the last step: "first", "reset", "full", or None
    _raw: int | None = None

    def step(self, raw: int, most: float | None = None) -> int | None:
        """Returns the units since the last reading; None if unknown.

        `most` is the most that the link's speed allows: a smaller value after a larger one counts as a wrap only
        if the difference doesn't exceed it. Without `most`, the difference must be less than half the counter's
        range.
        """
        last, self._raw = self._raw, raw
        self.note = None
        if last is None:
            self.note = "first"
            return None
        if raw == last == _FULL_32:
            self.note = "full"
            return None
        delta = raw - last
        if delta < 0:
            wrapped = _wrapped(last, raw, most)
            if wrapped is None:
                self.note = "reset"
                return None
            delta = wrapped
        self.total += delta
        return delta

    def absent(self) -> None:
        """Marks the device as gone. Its next reading is a first one."""
        self._raw = None


def _wrapped(last: int, raw: int, most: float | None) -> int | None:
    for span in (2**32, 2**64):
        if last < span:
            delta = span - last + raw
            limit = span // 2 if most is None else min(most, span - 1)
            return delta if delta <= limit else None
    return None
