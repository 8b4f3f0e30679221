"""Records the phases and the communication of one rank for each iteration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
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
    """One collective call or message.

    Attributes:
        group: the name of the group.
        ranks: the ranks of the group, or the sender and the receiver of a `send` or `recv`.
        size_bytes: the total S of docs/explanation/measurement.md.
        start, end: marks of the clock. `end` is None until the call has ended.
    """

    op: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    start: Any
    end: Any = None


@dataclass(frozen=True)
class Communication:
    """A finished collective call or message, see `Call`. Times are on the host's monotonic clock."""

    op: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Sample:
    """One finished iteration of one rank.

    Attributes:
        phases: time of each phase in nanoseconds. They sum to the iteration.
        parts: the iteration split by what computed and communicated.
        host_issue_ns: time that the host took to issue the iteration. None on a CPU.
        kept_pace: whether the device had reached the optimizer's step by then. None on a CPU. If it hadn't, the
            host may have waited for the device's full queue, and `host_issue_ns` says nothing about the host.
        expert_rows: number of copies of tokens that this rank's experts computed in forward, of all layers and
            micro-batches. None without expert parallelism.
        expert_copies: number of copies of this rank's tokens that it sent to experts on all ranks.
        replayed: whether the device replayed the iteration from a CUDA graph.
    """

    start_ns: int
    end_ns: int
    phases: dict[Phase, int]
    parts: Parts
    communications: list[Communication]
    host_issue_ns: int | None = None
    kept_pace: bool | None = None
    expert_rows: int | None = None
    expert_copies: int = 0
    replayed: bool = False

    @property
    def expert_load(self) -> float | None:
        """The number of copies that this rank's experts computed over the number that it sent."""
        return None if self.expert_rows is None else self.expert_rows / max(1, self.expert_copies)


@dataclass
class Span:
    """A phase between two marks. `outer` is the index of the phase that contains it, or None."""

    phase: Phase
    outer: int | None
    start: Any
    end: Any = None


@dataclass
class Marks:
    """The marks of an iteration whose work has been issued, but may not have been done."""

    start: Any
    end: Any = None
    phases: list[Span] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    issue_start_ns: int = field(default_factory=perf_counter_ns)  # on the host's clock
    host_issue_ns: int | None = None
    kept_pace: bool | None = None
    expert_rows: int | None = None
    expert_copies: int = 0
    replayed: bool = False  # whether a CUDA graph did the iteration


class _Timed(AbstractContextManager["Span | None"]):
    """Context of a phase. It is a class, because a generator takes the host twice the time."""

    def __init__(self, recorder: Recorder, phase: Phase) -> None:
        self._recorder = recorder
        self._phase = phase

    def __enter__(self) -> Span:
        self._span = self._recorder.enter(self._phase)
        return self._span

    def __exit__(self, *_: object) -> None:
        self._recorder.leave(self._span)


class Recorder:
    """Records the phases and the communication of the current iteration. Collectives may end on another thread.

    Phases nest, for example tensor parallelism communicates inside forward. The time of a phase excludes the
    phases inside it, so that all phases sum to the iteration. Outside an iteration, as in validation, nothing
    is recorded.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._current: Marks | None = None
        self._open: list[int] = []
        self._lock = threading.Lock()

    @property
    def current(self) -> Marks:
        """The marks of the current iteration."""
        assert self._current is not None, "an iteration must begin first"
        return self._current

    def begin(self) -> None:
        """Starts an iteration."""
        self._current = Marks(self.clock.now())
        self._open.clear()

    @contextmanager
    def capturing(self) -> Iterator[Marks]:
        """Gives marks of their own to the work that a CUDA graph captures in the context.

        Raises:
            RuntimeError: if a collective has not ended, because the strategy returned too early.
        """
        outside = self._current, self._open
        marks = Marks(None)
        self._current, self._open = marks, []
        try:
            yield marks
            self._check_ended(marks)
        finally:
            self._current, self._open = outside

    def replayed(self, captured: Marks) -> None:
        """Adds the marks of a graph that has been replayed to the current iteration.

        The next replay of the graph records the marks again. The iteration must be resolved before.
        """
        spans = self.current.phases
        first = len(spans)
        spans += [s if s.outer is None else replace(s, outer=s.outer + first) for s in captured.phases]
        self.current.calls += captured.calls
        self.current.replayed = True

    def phase(self, phase: Phase) -> AbstractContextManager[Span | None]:
        """Returns a context whose time counts for `phase`. It gives the span, or None outside an iteration."""
        return nullcontext() if self._current is None else _Timed(self, phase)

    def enter(self, phase: Phase) -> Span:
        """Starts a phase inside the current one."""
        spans = self.current.phases
        span = Span(phase, self._open[-1] if self._open else None, self.clock.now())
        self._open.append(len(spans))
        spans.append(span)
        return span

    def leave(self, span: Span) -> None:
        """Ends the current phase."""
        self._open.pop()
        span.end = self.clock.now()

    def launch(self, op: str, group: str, ranks: tuple[int, ...], size_bytes: int, start: Any = None) -> Call:
        """Records the start of a collective, now or at the mark `start`. The caller records its end with
        `ended`."""
        call = Call(op, group, ranks, size_bytes, self.clock.now() if start is None else start)
        if self._current is not None:
            with self._lock:
                self._current.calls.append(call)
        return call

    def count_expert_rows(self, sent: int, received: int) -> None:
        """Counts copies of tokens that this rank sends to experts, and those that its experts compute."""
        if self._current is not None:
            self._current.expert_rows = (self._current.expert_rows or 0) + received
            self._current.expert_copies += sent

    def ended(self, call: Call) -> None:
        """Records the end of a collective."""
        call.end = self.clock.now()

    def ends_with(self, call: Call, work: Any) -> torch.futures.Future[Any] | None:
        """Records the end of an asynchronous collective when `work` ends.

        Returns:
            A future that completes after the end has been recorded, or None if its mark has been recorded already.
        """
        return self.clock.after(work, call.group, partial(self.ended, call))

    def value_of(self, call: Call, work: Any, value: Any) -> torch.futures.Future[Any]:
        """Records the end as `ends_with` does, and returns a future that then completes with `value`."""
        return self.clock.value_after(work, call.group, partial(self.ended, call), value)

    def inside(self, outer: Phase, since: Any, until: Any, phase: Phase) -> None:
        """Counts the time between two marks in the last `outer` for `phase`."""
        spans = self.current.phases
        spans.append(Span(phase, self._last(outer), since, until))

    def tail(self, outer: Phase, since: Any, phase: Phase) -> None:
        """Counts the time from the mark `since` to the end of the last `outer` for `phase`."""
        self.inside(outer, since, self.current.phases[self._last(outer)].end, phase)

    def _last(self, phase: Phase) -> int:
        return max(n for n, span in enumerate(self.current.phases) if span.phase is phase)

    def finish(self) -> Marks:
        """Ends the iteration.

        Raises:
            RuntimeError: if a collective has not ended, because the strategy returned too early.
        """
        marks = self.current
        marks.end = self.clock.now()
        self._check_ended(marks)
        self._current = None
        if self.clock.asynchronous:
            marks.host_issue_ns = perf_counter_ns() - marks.issue_start_ns
            steps = [span.start for span in marks.phases if span.phase is Phase.OPTIMIZER]
            # The marks of a graph have happened in its last replay.
            marks.kept_pace = self.clock.has_happened(steps[-1]) if steps and not marks.replayed else None
        return marks

    @staticmethod
    def _check_ended(marks: Marks) -> None:
        open_calls = [c.op for c in marks.calls if c.end is None]
        if open_calls:
            raise RuntimeError(f"iteration ended with unfinished collectives: {', '.join(open_calls)}")

    def resolve(self, marks: Marks) -> Sample:
        """Computes the times of an iteration that the device has done. Iterations must be resolved in their
        order."""
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
        # Waiting for communication inside a compute phase isn't computation.
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
            marks.expert_rows,
            marks.expert_copies,
            marks.replayed,
        )
