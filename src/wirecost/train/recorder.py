"""Phases and communication of one rank, iteration by iteration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from wirecost.breakdown import Parts, Phase, split_window
from wirecost.breakdown.intervals import EMPTY, from_pairs, subtract
from wirecost.train.clock import Clock

COMPUTE_PHASES = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER})


@dataclass
class Call:
    """One collective call: `size_bytes` is the total S of docs/measurement.md; `start` and `end` are marks."""

    op: str
    group: str
    group_size: int
    size_bytes: int
    start: Any
    end: Any = None


@dataclass(frozen=True)
class Communication:
    """A finished collective call."""

    op: str
    group: str
    group_size: int
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Sample:
    """One finished iteration of one rank."""

    start_ns: int
    end_ns: int
    phases: dict[Phase, int]
    parts: Parts
    communications: list[Communication]


@dataclass
class Marks:
    """An iteration whose work has been issued, but perhaps not yet done."""

    start: Any
    end: Any = None
    phases: list[tuple[Phase, Any, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    blocked: list[tuple[Any, Any]] = field(default_factory=list)


class Recorder:
    """Notes down what happens in the current iteration. Collectives may end on another thread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._current: Marks | None = None
        self._lock = threading.Lock()

    @property
    def current(self) -> Marks:
        assert self._current is not None, "an iteration must begin first"
        return self._current

    def begin(self) -> None:
        """Starts an iteration."""
        self._current = Marks(self.clock.now())

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        start = self.clock.now()
        yield
        self.current.phases.append((phase, start, self.clock.now()))

    def launch(self, op: str, group: str, group_size: int, size_bytes: int) -> Call:
        """Records the start of a collective; whoever sees it end calls `ended`."""
        call = Call(op, group, group_size, size_bytes, self.clock.now())
        with self._lock:
            self.current.calls.append(call)
        return call

    def ended(self, call: Call) -> None:
        call.end = self.clock.now()

    def blocked_until_now(self, since: Any) -> None:
        """Marks what lies between within a compute phase as waiting for communication, not computing."""
        self.current.blocked.append((since, self.clock.now()))

    def finish(self) -> Marks:
        """Ends the iteration.

        Raises:
            RuntimeError: if a collective has not ended: the strategy returned too early.
        """
        marks = self.current
        marks.end = self.clock.now()
        open_calls = [c.op for c in marks.calls if c.end is None]
        if open_calls:
            raise RuntimeError(f"iteration ended with unfinished collectives: {', '.join(open_calls)}")
        self._current = None
        return marks

    def resolve(self, marks: Marks) -> Sample:
        """Turns an iteration that has happened into numbers; iterations in their order."""
        flat = [marks.start, marks.end]
        for _, start, end in marks.phases:
            flat += [start, end]
        for call in marks.calls:
            flat += [call.start, call.end]
        for start, end in marks.blocked:
            flat += [start, end]
        times = iter(self.clock.nanoseconds(flat))
        start_ns, end_ns = next(times), next(times)
        phases = [(phase, next(times), next(times)) for phase, _, _ in marks.phases]
        communications = [
            Communication(c.op, c.group, c.group_size, c.size_bytes, next(times), next(times)) for c in marks.calls
        ]
        blocked = from_pairs((next(times), next(times)) for _ in marks.blocked)
        compute = subtract(from_pairs((s, e) for p, s, e in phases if p in COMPUTE_PHASES), blocked)
        comm = from_pairs((c.start_ns, c.end_ns) for c in communications)
        summed: dict[Phase, int] = {}
        for phase, start, end in phases:
            summed[phase] = summed.get(phase, 0) + end - start
        summed[Phase.OTHER] = end_ns - start_ns - sum(summed.values())
        return Sample(
            start_ns,
            end_ns,
            summed,
            split_window(start_ns, end_ns, compute=compute, comm=comm, memory=EMPTY),
            communications,
        )
