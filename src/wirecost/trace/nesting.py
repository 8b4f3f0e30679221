"""Ranges of host threads that nest."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from wirecost.trace.recorded import HostRange


class Nested:
    """Ranges of host threads, which nest."""

    def __init__(self, ranges: list[HostRange]) -> None:
        by_thread: dict[int, list[HostRange]] = defaultdict(list)
        for r in sorted(ranges, key=lambda r: (r.start_ns, -r.end_ns)):
            by_thread[r.thread].append(r)
        self._ranges = dict(by_thread)
        self._starts = {t: np.array([r.start_ns for r in rs], dtype=np.int64) for t, rs in by_thread.items()}
        self._parents = {t: _parents(rs) for t, rs in by_thread.items()}

    def innermost(self, thread: int, time_ns: int) -> HostRange | None:
        """Returns the innermost range of a thread at a time; None if there is none."""
        if thread not in self._ranges:
            return None
        at = int(np.searchsorted(self._starts[thread], time_ns, side="right")) - 1
        while at >= 0 and self._ranges[thread][at].end_ns <= time_ns:
            at = self._parents[thread][at]
        return self._ranges[thread][at] if at >= 0 else None


def _parents(ranges: list[HostRange]) -> list[int]:
    """Returns, for ranges in order of start, the index of the enclosing range; -1 if there is none."""
    opened: list[int] = []
    parents = []
    for number, r in enumerate(ranges):
        while opened and ranges[opened[-1]].end_ns <= r.start_ns:
            opened.pop()
        parents.append(opened[-1] if opened else -1)
        opened.append(number)
    return parents
