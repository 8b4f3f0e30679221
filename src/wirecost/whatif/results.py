"""What is answered about a job: the replay, and an answer to each question."""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.breakdown import Parts
from wirecost.diagnostics import Diagnostic


@dataclass
class Answer:
    """The answer to one question. `iteration_ms` is None where only `low_ms` to `high_ms` is known."""

    question: str
    iteration_ms: float | None
    low_ms: float
    high_ms: float
    bound_by: str
    comm_fraction: float | None
    parts: list[Parts] = field(default_factory=list)
    why_interval: str | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)


@dataclass
class Replay:
    """How the replay of the recording compares with it.

    `iteration_ms` is the replayed iteration, without the profiler where the step time tells its cost; `error` the
    replay against the recording, as a share.
    """

    iteration_ms: float
    recorded_ms: float
    error: float
    bound_by: str
    comm_fraction: float | None
    parts: list[Parts]


@dataclass
class Counts:
    """What the graph rests on: waits between streams that were inferred, dropped and moved, device work without a
    recorded launch, communication that matches no other rank's, and host time that was cut as waiting."""

    inferred_waits: int
    refuted_waits: int
    moved_waits: int
    unlaunched: int
    unmatched: int
    unexplained_ms: float
    host_waiting_ms: float
