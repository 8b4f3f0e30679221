"""Phases and communication of one rank, iteration by iteration."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch

from wirecost.breakdown import Parts, Phase, split_window
from wirecost.breakdown.intervals import EMPTY, from_pairs, subtract
from wirecost.train.clock import Clock

COMPUTE_PHASES = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER})


@dataclass
class Call:
    """One collective call: `size_bytes` is the total S of docs/measurement.md; `start` and `end` are marks.

    `ranks` are the group's; of a `send` or `recv` the sender and the receiver, in this order.
    """

    op: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    start: Any
    end: Any = None


@dataclass(frozen=True)
class Communication:
    """A finished collective call."""

    op: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Sample:
    """One finished iteration of one rank. Of a device that the host runs ahead of: `host_issue_ns`, how long the
    host took to issue the iteration, and `kept_pace`, whether the device had come to the optimizer's step by then;
    None on a CPU. A device that is the slower one makes the host wait once its queue is full, so that the first
    tells nothing without the second."""

    start_ns: int
    end_ns: int
    phases: dict[Phase, int]
    parts: Parts
    communications: list[Communication]
    host_issue_ns: int | None = None
    kept_pace: bool | None = None


@dataclass
class Span:
    """A phase from `start` to `end`, inside another one where `outer` is its place in the list."""

    phase: Phase
    outer: int | None
    start: Any
    end: Any = None


@dataclass
class Marks:
    """An iteration whose work has been issued, but perhaps not yet done."""

    start: Any
    end: Any = None
    phases: list[Span] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    begun_ns: int = field(default_factory=perf_counter_ns)  # on the host
    host_issue_ns: int | None = None
    kept_pace: bool | None = None


class _Timed(AbstractContextManager["Span | None"]):
    """A phase (a generator would take the host twice the time)."""

    def __init__(self, recorder: Recorder, phase: Phase) -> None:
        self._recorder = recorder
        self._phase = phase

    def __enter__(self) -> Span:
        self._span = self._recorder.enter(self._phase)
        return self._span

    def __exit__(self, *_: object) -> None:
        self._recorder.leave(self._span)


class Recorder:
    """Notes down what happens in the current iteration. Collectives may end on another thread.

    Phases nest (tensor parallelism communicates inside forward): a phase's time excludes those inside it, so
    that all of them sum to the iteration. Outside an iteration (validation, checkpoints) nothing is noted.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._current: Marks | None = None
        self._open: list[int] = []
        self._lock = threading.Lock()

    @property
    def current(self) -> Marks:
        assert self._current is not None, "an iteration must begin first"
        return self._current

    def begin(self) -> None:
        """Starts an iteration."""
        self._current = Marks(self.clock.now())
        self._open.clear()

    def phase(self, phase: Phase) -> AbstractContextManager[Span | None]:
        """None outside an iteration."""
        return nullcontext() if self._current is None else _Timed(self, phase)

    def enter(self, phase: Phase) -> Span:
        spans = self.current.phases
        span = Span(phase, self._open[-1] if self._open else None, self.clock.now())
        self._open.append(len(spans))
        spans.append(span)
        return span

    def leave(self, span: Span) -> None:
        self._open.pop()
        span.end = self.clock.now()

    def launch(self, op: str, group: str, ranks: tuple[int, ...], size_bytes: int, start: Any = None) -> Call:
        """Records the start of a collective, now or at a mark; whoever sees it end calls `ended`."""
        call = Call(op, group, ranks, size_bytes, self.clock.now() if start is None else start)
        if self._current is not None:
            with self._lock:
                self._current.calls.append(call)
        return call

    def ended(self, call: Call) -> None:
        call.end = self.clock.now()

    def ends_with(self, call: Call, work: Any) -> torch.futures.Future[Any] | None:
        """Records the end of a collective as that of `work`, which was issued asynchronously; the future, if there
        is one, is complete then."""
        return self.clock.after(work, call.group, partial(self.ended, call))

    def value_of(self, call: Call, work: Any, value: Any) -> torch.futures.Future[Any]:
        """As `ends_with`, with a future of `value`."""
        return self.clock.value_after(work, call.group, partial(self.ended, call), value)

    def inside(self, outer: Phase, since: Any, until: Any, phase: Phase) -> None:
        """What the last `outer` did between two marks was `phase`."""
        spans = self.current.phases
        spans.append(Span(phase, self._last(outer), since, until))

    def tail(self, outer: Phase, since: Any, phase: Phase) -> None:
        """What the last `outer` did from the mark `since` to its end was `phase`."""
        self.inside(outer, since, self.current.phases[self._last(outer)].end, phase)

    def _last(self, phase: Phase) -> int:
        return max(n for n, span in enumerate(self.current.phases) if span.phase is phase)

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
        if self.clock.asynchronous:
            marks.host_issue_ns = perf_counter_ns() - marks.begun_ns
            steps = [span.start for span in marks.phases if span.phase is Phase.OPTIMIZER]
            marks.kept_pace = self.clock.has_happened(steps[-1]) if steps else None
        return marks

    def resolve(self, marks: Marks) -> Sample:
        """Turns an iteration that has happened into numbers; iterations in their order."""
        flat = [marks.start, marks.end]
        for span in marks.phases:
            flat += [span.start, span.end]
        for call in marks.calls:
            flat += [call.start, call.end]
        times = iter(self.clock.nanoseconds(flat))
        start_ns, end_ns = next(times), next(times)
        spans = [(s.phase, s.outer, next(times), next(times)) for s in marks.phases]
        communications = [
            Communication(c.op, c.group, c.ranks, c.size_bytes, next(times), next(times)) for c in marks.calls
        ]
        computing = from_pairs((start, end) for phase, _, start, end in spans if phase in COMPUTE_PHASES)
        # Waiting for communication inside a compute phase is no compute.
        waiting = from_pairs((start, end) for phase, _, start, end in spans if phase not in COMPUTE_PHASES)
        compute = subtract(computing, waiting)
        comm = from_pairs((c.start_ns, c.end_ns) for c in communications)
        summed: dict[Phase, int] = {}
        for phase, outer, start, end in spans:
            summed[phase] = summed.get(phase, 0) + end - start
            if outer is not None:
                summed[spans[outer][0]] -= end - start
        summed[Phase.OTHER] = end_ns - start_ns - sum(summed.values())
        return Sample(
            start_ns,
            end_ns,
            summed,
            split_window(start_ns, end_ns, compute=compute, comm=comm, memory=EMPTY),
            communications,
            marks.host_issue_ns,
            marks.kept_pace,
        )
