"""Finds where the host made streams wait for each other, and where it waited for the device itself."""

from __future__ import annotations

import re

import numpy as np

from wirecost.trace.nesting import Nested
from wirecost.trace.recorded import Recorded

_STREAM_WAITS = re.compile(r"StreamWaitEvent|StreamWaitValue|AppendWaitOnEvents|EnqueueEventsWait", re.IGNORECASE)
_HOST_WAITS = re.compile(
    r"Synchroni[sz]e|^(cuda|hip)Memcpy$|EventsWait|QueueFinish|hipMemcpyWithStream", re.IGNORECASE
)
_LEAST_NS = 20_000  # a shorter one found the device done
_SLACK_NS = 50_000  # from the end of a kernel until the host that waited for it goes on


class HostWaits:
    """Host calls of a rank that wait for the device, or that make a stream wait outside of a collective's own
    launch.
    """

    def __init__(self, recorded: Recorded) -> None:
        launches = recorded.launches
        self._names = launches.names
        waits = np.array([bool(_STREAM_WAITS.search(n)) for n in launches.names], dtype=bool)
        blocks = np.array([bool(_HOST_WAITS.search(n)) for n in launches.names], dtype=bool)
        name = launches.name
        rows = np.flatnonzero(waits[name]) if len(name) else np.empty(0, dtype=np.int64)
        inside = Nested([r for r in recorded.host_ranges if not r.waits])
        joins = [
            int(launches.start_ns[row])
            for row in rows
            if inside.innermost(int(launches.thread[row]), int(launches.start_ns[row])) is None
        ]
        self._joins = np.array(sorted(joins), dtype=np.int64)
        self._blocking = np.flatnonzero(blocks[name]) if len(name) else np.empty(0, dtype=np.int64)
        self._start, self._end, self._name = (
            column[self._blocking] for column in (launches.start_ns, launches.end_ns, launches.name)
        )
        self._ended = np.maximum.accumulate(self._end) if len(self._end) else self._end

    def joined(self, after_ns: int, until_ns: int) -> bool:
        """Returns whether the host made a stream wait for another between two times."""
        at = np.searchsorted(self._joins, after_ns, side="right")
        return bool(at < len(self._joins) and self._joins[at] <= until_ns)

    def blocked(self, end_ns: int, next_launch_ns: int, since_ns: int) -> bool:
        """Returns whether the host waited for the device past the end of a call and launched the next work only
        then.
        """
        rows = self._between(end_ns, end_ns)
        start, end = self._start[rows], self._end[rows]
        over = (end >= end_ns) & (end - start >= _LEAST_NS) & (end >= since_ns)
        over &= (end <= next_launch_ns + _SLACK_NS) & (next_launch_ns >= end_ns)
        return bool(over.any())

    def during(self, start_ns: int, end_ns: int) -> str | None:
        """Returns the waiting call that took most of a stretch of time, if it took half of it."""
        rows = self._between(start_ns, end_ns)
        spent = np.minimum(self._end[rows], end_ns) - np.maximum(self._start[rows], start_ns)
        if len(spent) == 0 or spent.max() < 0.5 * (end_ns - start_ns) or end_ns <= start_ns:
            return None
        return self._names[int(self._name[rows][int(spent.argmax())])]

    def _between(self, start_ns: int, end_ns: int) -> slice:
        """Returns the blocking calls among which are all that last over some of [start_ns, end_ns]."""
        first = int(np.searchsorted(self._ended, start_ns, side="left"))
        return slice(first, int(np.searchsorted(self._start, end_ns, side="right")))
