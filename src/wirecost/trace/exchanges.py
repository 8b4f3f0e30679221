"""Messages between two ranks: each send with its receive, by source, destination and order.

A kernel may hold several messages (a batch of sends and receives). Kernels that are joined by messages form one
exchange, in which each waits for its own neighbours only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.trace.clocks import Clocks
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.rank import RankTrace

_MAX_SHIFT = 1000
# Messages that a shift brings together must overlap in time, but for those that are sent ahead into a buffer.
_TOGETHER_SHARE = 0.9
_TOLERANCE_NS = 1_000_000  # between the clocks of different hosts

Place = tuple[int, int]  # (number of the trace, row of its calls)


class Exchange(msgspec.Struct):
    """Calls that are joined by messages; `messages` are pairs of positions in `calls`, (sender's, receiver's)."""

    calls: list[Place]
    messages: list[tuple[int, int]]


class _Times:
    """Starts and ends of calls on clocks that can be compared."""

    def __init__(self, traces: Sequence[RankTrace], clocks: Clocks) -> None:
        self.traces, self.clocks = traces, clocks
        self.start = [clocks.corrected(n, t.calls.start_ns) for n, t in enumerate(traces)]
        self.end = [clocks.corrected(n, t.calls.end_ns) for n, t in enumerate(traces)]

    def possible(self, pairs: list[tuple[Place, Place]]) -> bool:
        """Returns whether no message is received whole before it is sent, so far as clocks can be compared."""
        comparable = self.clocks.comparable
        return all(
            comparable[a] != comparable[b] or self.end[b][received] + _TOLERANCE_NS >= self.start[a][sent]
            for (a, sent), (b, received) in pairs
        )

    def together(self, pairs: list[tuple[Place, Place]]) -> float:
        """Returns the share of messages whose two kernels overlap in time."""
        overlap = [
            min(self.end[n][row] for n, row in pair) >= max(self.start[n][row] for n, row in pair)
            for pair in pairs
        ]
        return float(np.mean(overlap)) if overlap else 0.0


def match_messages(traces: Sequence[RankTrace], clocks: Clocks, diagnostics: DiagnosticCounts) -> list[Exchange]:
    """Returns every exchange whose messages are matched, and counts the other calls in `diagnostics`."""
    times = _Times(traces, clocks)
    sent: dict[tuple[str, int, int], list[Place]] = defaultdict(list)
    received: dict[tuple[str, int, int], list[Place]] = defaultdict(list)
    matched_places: set[Place] = set()
    ranks = {t.rank for t in traces}
    for number, trace in enumerate(traces):
        calls = trace.calls
        for row, peers in sorted(calls.peers.items()):
            group = calls.groups[calls.group[row]]
            for source, destination in peers:
                ends = [trace.rank if end < 0 else end for end in (source, destination)]
                if trace.rank not in ends or ends[0] == ends[1] or not set(ends) <= ranks:
                    continue
                matched_places.add((number, row))
                side = sent if ends[0] == trace.rank else received
                side[group, ends[0], ends[1]].append((number, row))  # pyright: ignore[reportArgumentType]
    links: list[tuple[Place, Place]] = []
    for key in sent.keys() & received.keys():
        links += _pairs(times, sent[key], received[key])
    joined = {place for link in links for place in link}
    several = len(traces) > 1
    unknown = sum(_point_to_point(t) for t in traces) - sum(_is_point_to_point(traces[n], r) for n, r in joined)
    diagnostics.add("point_to_point", unknown if several else 0)
    return _exchanges(links)


def _point_to_point(trace: RankTrace) -> int:
    return sum(_is_point_to_point(trace, row) for row in range(len(trace.calls)))


def _is_point_to_point(trace: RankTrace, row: int) -> bool:
    calls = trace.calls
    return calls.ops[calls.op[row]] in ("send", "recv") or row in calls.peers


def _pairs(times: _Times, sends: list[Place], receives: list[Place]) -> list[tuple[Place, Place]]:
    """Returns the sends and receives from one rank to another, each send with its receive; none where unclear."""
    numbers = [_numbers(times.traces, side) for side in (sends, receives)]
    if all(n is not None for n in numbers):
        by_number = dict(zip(numbers[1] or [], receives, strict=True))
        pairs = [(place, by_number[n]) for n, place in zip(numbers[0] or [], sends, strict=True) if n in by_number]
        if pairs and times.possible(pairs):
            return pairs
    shorter = min(len(sends), len(receives))
    if len(sends) == len(receives):
        pairs = list(zip(sends, receives, strict=True))
        if times.possible(pairs):
            return pairs
    fits = []
    for shift in range(min(max(len(sends), len(receives)) - shorter, _MAX_SHIFT) + 1):
        left, right = (s[shift : shift + shorter] if len(s) > shorter else s for s in (sends, receives))
        pairs = list(zip(left, right, strict=True))
        if times.possible(pairs) and times.together(pairs) >= _TOGETHER_SHARE:
            fits.append(pairs)
    return fits[0] if len(fits) == 1 else []


def _numbers(traces: Sequence[RankTrace], side: list[Place]) -> list[int] | None:
    """Returns the sequence numbers of calls, if each has one of its own."""
    numbers = [int(traces[n].calls.sequence[row]) for n, row in side]
    return numbers if min(numbers) >= 0 and len(set(numbers)) == len(numbers) else None


def _exchanges(links: list[tuple[Place, Place]]) -> list[Exchange]:
    """Returns the calls that links join, directly or over others."""
    parent: dict[Place, Place] = {}

    def root(place: Place) -> Place:
        while parent.setdefault(place, place) != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for a, b in links:
        parent[root(a)] = root(b)
    members: dict[Place, list[Place]] = defaultdict(list)
    for place in sorted({place for link in links for place in link}):
        members[root(place)].append(place)
    exchanges = {top: Exchange(places, []) for top, places in members.items()}
    position = {place: number for places in members.values() for number, place in enumerate(places)}
    for a, b in links:
        exchanges[root(a)].messages.append((position[a], position[b]))
    return list(exchanges.values())
