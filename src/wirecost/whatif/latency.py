"""The time of a message besides its bytes, learned from a job's own transfers.

A collective takes bytes / rate + steps x latency, where a ring of n ranks has n - 1 steps, twice for an all-reduce
(doi 10.1016/j.jpdc.2008.09.002). Only small messages tell the latency: larger ones don't reach the rate either,
and a shaper lets some of their bytes through at once. Messages that share the link with others tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wirecost.trace.operations import bus_factor
from wirecost.whatif.nodes import JOIN, Collective, Graph

BYTES_SHARE = 0.5
"""A message tells the latency if its bytes take at most this share of its median time."""
SMALL_BYTES = 1 << 16
"""Bytes of the largest message that tells the latency."""
_LEAST_CALLS = 8
"""Fewer messages of one operation and size tell nothing."""

Range = tuple[float, float, float]
"""A median in seconds, between the quartiles: (lower quartile, median, upper quartile)."""


@dataclass(frozen=True)
class Latency:
    """The latency of one step of a collective, by operation, and `of_any` that of all of them together.

    That of an operation without small messages in the recording isn't known: it counts as nothing, and its upper
    bound is the lower quartile of the others.
    """

    by_op: Mapping[str, Range] = field(default_factory=dict)
    of_any: Range = (0.0, 0.0, 0.0)

    @property
    def is_known(self) -> bool:
        """Whether the recording has messages that tell it."""
        return bool(self.by_op)

    def of(self, op: str, size: int) -> Range:
        """Returns the seconds that a collective of `size` ranks takes besides its bytes."""
        steps = steps_of(op, size)
        low, middle, high = self.by_op.get(op, (0.0, 0.0, self.of_any[0]))
        return steps * low, steps * middle, steps * high

    def scaled(self, factor: float) -> Latency:
        """Returns the latency of a job in which everything takes `factor` times as long."""

        def times(values: Range) -> Range:
            low, middle, high = values
            return low * factor, middle * factor, high * factor

        return Latency({op: times(values) for op, values in self.by_op.items()}, times(self.of_any))


def steps_of(op: str, size: int) -> int:
    """Returns the number of messages that follow each other in a collective of `size` ranks."""
    if size < 2:
        return 0
    if op in ("all_reduce", "barrier"):
        return 2 * (size - 1)
    if op in ("broadcast", "reduce"):
        return math.ceil(math.log2(size))
    return 1 if op in ("send", "recv", "send_recv") else size - 1


def learned_latency(graph: Graph, rate_Bps: float | None, delay_s: float = 0.0) -> Latency:
    """Returns the latency that a job's transfers show.

    Args:
        rate_Bps: rate of the recorded network in bytes per second and direction. None if it isn't known: the
            fastest transfer of the recording is then taken to have reached it.
        delay_s: what the recorded network delays each step by definition, which isn't counted.
    """
    alone = [c for c, shared in zip(graph.collectives, _share_link(graph), strict=True) if not shared]
    measured = _measured(alone)
    if rate_Bps is None:
        rates = [_wire_bytes(op, size, total) / time for (op, size, total), times in measured.items()
                 if (time := float(np.median(times))) > 0]  # fmt: skip
        rate_Bps = max(rates, default=0.0)
    if rate_Bps <= 0:
        return Latency()
    by_op: dict[str, list[float]] = {}
    for (op, size, total), times in measured.items():
        bytes_s = _wire_bytes(op, size, total) / rate_Bps
        small = total <= SMALL_BYTES and bytes_s <= BYTES_SHARE * float(np.median(times))
        if small and len(times) >= _LEAST_CALLS:
            steps = steps_of(op, size)
            by_op.setdefault(op, []).extend(max((time - bytes_s) / steps - delay_s, 0.0) for time in times)
    if not by_op:
        return Latency()
    together = [value for values in by_op.values() for value in values]
    return Latency({op: _quartiles(values) for op, values in by_op.items()}, _quartiles(together))


def _quartiles(values: Sequence[float]) -> Range:
    low, middle, high = (float(v) for v in np.percentile(values, (25, 50, 75)))
    return low, middle, high


def _wire_bytes(op: str, size: int, total: int) -> float:
    factor = bus_factor(op, size)
    return total * (1.0 if factor is None else factor)


def _measured(collectives: Sequence[Collective]) -> dict[tuple[str, int, int], list[float]]:
    """Returns the transfers in seconds by operation, ranks and bytes."""
    found: dict[tuple[str, int, int], list[float]] = {}
    for c in collectives:
        if c.known and c.bytes and c.transfer_ns > 0 and steps_of(c.op, c.size):
            found.setdefault((c.op, c.size, c.bytes), []).append(c.transfer_ns * 1e-9)
    return found


def _share_link(graph: Graph) -> list[bool]:
    """Returns of each collective whether another one was under way on one of its ranks during its transfer. Those
    that no step holds count as well."""
    shared = [True] * len(graph.collectives)
    met: set[int] = set()
    for rank in graph.ranks:
        ends = rank.record.recorded.device.end_ns
        spans = sorted(
            (int(ends[row]) - graph.collectives[join].transfer_ns, int(ends[row]), join)
            for step in rank.steps
            for kind, row, join in zip(step.kind, step.row, step.join, strict=True)
            if kind == JOIN and row >= 0
        )
        busy_until, last = -1, -1
        for start, end, join in spans:
            shared[join] = False
            if start < busy_until:
                met |= {join, last}
            if end > busy_until:
                busy_until, last = end, join
    return [is_shared or number in met for number, is_shared in enumerate(shared)]
