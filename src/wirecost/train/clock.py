"""Phases and communication of one rank, on the host's clock.

The clock is CLOCK_MONOTONIC (`time.perf_counter_ns` on Linux): one clock for every process of a machine, so
that the ranks of emulated hosts can be compared without alignment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns

from wirecost.breakdown import Parts, Phase, split_window
from wirecost.breakdown.intervals import EMPTY, from_pairs, subtract

COMPUTE_PHASES = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER})


@dataclass
class Communication:
    """One collective call: `size_bytes` is the total S of docs/measurement.md."""

    op: str
    group: str
    group_size: int
    size_bytes: int
    start_ns: int
    end_ns: int | None = None


@dataclass
class Recorder:
    """What happened in the current iteration. Collectives may end on another thread."""

    phases: list[tuple[Phase, int, int]] = field(default_factory=list)
    communications: list[Communication] = field(default_factory=list)
    blocked: list[tuple[int, int]] = field(default_factory=list)
    start_ns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Starts an iteration and forgets the last."""
        self.phases, self.communications, self.blocked = [], [], []
        self.start_ns = perf_counter_ns()

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        start = perf_counter_ns()
        yield
        self.phases.append((phase, start, perf_counter_ns()))

    def launch(self, op: str, group: str, group_size: int, size_bytes: int) -> Communication:
        """Records the start of a collective; whoever sees it end sets `end_ns`."""
        entry = Communication(op, group, group_size, size_bytes, perf_counter_ns())
        with self._lock:
            self.communications.append(entry)
        return entry

    def blocked_until_now(self, since_ns: int) -> None:
        """Marks [since, now) inside a compute phase as waiting for communication, not computing."""
        self.blocked.append((since_ns, perf_counter_ns()))

    def finish(self) -> Sample:
        """Ends the iteration.

        Raises:
            RuntimeError: if a collective has not ended: the strategy returned too early.
        """
        end_ns = perf_counter_ns()
        open_calls = [c.op for c in self.communications if c.end_ns is None]
        if open_calls:
            raise RuntimeError(f"iteration ended with unfinished collectives: {', '.join(open_calls)}")
        comm = from_pairs((c.start_ns, c.end_ns) for c in self.communications if c.end_ns is not None)
        compute = subtract(
            from_pairs((s, e) for p, s, e in self.phases if p in COMPUTE_PHASES), from_pairs(self.blocked)
        )
        phases: dict[Phase, int] = {}
        for phase, start, stop in self.phases:
            phases[phase] = phases.get(phase, 0) + stop - start
        phases[Phase.OTHER] = end_ns - self.start_ns - sum(phases.values())
        parts = split_window(self.start_ns, end_ns, compute=compute, comm=comm, memory=EMPTY)
        return Sample(self.start_ns, end_ns, phases, parts, self.communications)


@dataclass(frozen=True)
class Sample:
    """One finished iteration of one rank."""

    start_ns: int
    end_ns: int
    phases: dict[Phase, int]
    parts: Parts
    communications: list[Communication]
