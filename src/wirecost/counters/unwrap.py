"""Turns what a counter shows into what passed: over wraps, resets, and the absence of its device."""

from __future__ import annotations

from dataclasses import dataclass

# A 32-bit PortCounters register that is full stays at this value until it is reset (InfiniBand, 16.1.3.5).
_FULL_32 = 2**32 - 1


@dataclass(slots=True)
class Counter:
    """One counter. `total` is what it counted since the first reading, without what can't be known."""

    total: int = 0
    note: str | None = None  # about the last step: "first", "reset", "full", or None
    _raw: int | None = None

    def step(self, raw: int, most: float | None = None) -> int | None:
        """The units that passed since the last reading, or None where that isn't known.

        `most` is what can have passed at link speed: a smaller value after a larger one is a wrap only if it fits.
        Without it, less than half the counter's range must have passed.
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
        """The device is gone; whatever it shows when it comes back is a new beginning."""
        self._raw = None


def _wrapped(last: int, raw: int, most: float | None) -> int | None:
    for span in (2**32, 2**64):
        if last < span:
            delta = span - last + raw
            limit = span // 2 if most is None else min(most, span - 1)
            return delta if delta <= limit else None
    return None
