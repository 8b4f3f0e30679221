"""Answers what-if questions: the recording is replayed, changed, and replayed again.

A number is given only where it is known: where the answer hangs on the host's speed without the profiler, or on
transfers that aren't known well, it is an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wirecost.diagnostics import Diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif.host_speed import HostSpeed
from wirecost.whatif.job import Job
from wirecost.whatif.measure import bound_by, iteration_ns, measure
from wirecost.whatif.question import Question
from wirecost.whatif.results import Answer, Counts, Replay
from wirecost.whatif.scenario import Scenario

TOLERANCE = 0.03
"""Largest error of the replay at which a single number is given."""
_WIDE = 0.02
"""An interval that is no wider than this share of its middle is given as a number."""
CORES_SHARED = 1.25
"""How many times as fast or slow computing on processors may be on another network, where gloo takes another share
of the cores."""


def answer_to(job: Job, question: Question) -> Answer:
    """Returns the answer to a question about a job.

    Two things may be uncertain, the host's speed and the transfers. Each is put to both of its ends; their
    effects on the iteration are taken as independent of each other.
    """
    scenario = job.scenario(question)
    if question.faster_host is not None and question.faster_host <= 0:
        raise WirecostError("--faster-host: the factor must be positive; 2 makes the host twice as fast")
    speeds = job.speeds(question)
    measured = measure(scenario, speeds)
    middle = measured.iteration_ns
    faster = 1.0 / (question.faster_host or 1.0)
    host, transfers = [middle, middle], [middle, middle]
    if job.host.low < job.host.high:
        host = [
            iteration_ns(scenario, replace(speeds, host=end * faster)) for end in (job.host.low, job.host.high)
        ]
    if not scenario.certain:
        ends = (scenario.shortest(), scenario.longest())
        transfers = [iteration_ns(changed, speeds, transfer_ns) for changed, transfer_ns in ends]
    computing = [middle, middle]
    if job.on_processors:
        computing = [
            iteration_ns(scenario, replace(speeds, device=speeds.device * factor))
            for factor in (1 / CORES_SHARED, CORES_SHARED)
        ]
    low, high = _together(middle, (host, transfers, computing))
    high += scenario.extra_ns
    why = _why(job, scenario, middle, host, transfers)
    margin = max(TOLERANCE, 2 * abs(job.error))
    certain = why is None
    return Answer(
        question=question.text,
        iteration_ms=middle * 1e-6 if certain else None,
        low_ms=(middle if certain else low * (1 - margin)) * 1e-6,
        high_ms=(middle if certain else high * (1 + margin)) * 1e-6,
        bound_by=bound_by(scenario, speeds),
        comm_fraction=measured.comm_fraction,
        parts=measured.parts,
        why_interval=why,
        diagnostics=scenario.diagnostics,
    )


def _why(job: Job, scenario: Scenario, middle: float, host: list[float], transfers: list[float]) -> str | None:
    """Returns why only an interval is known; None where a number is."""
    if abs(job.error) > TOLERANCE:
        return (
            f"the replay of the recording is {100 * job.error:+.1f} % off, more than the "
            f"{100 * TOLERANCE:g} % at which a number is given"
        )
    if scenario.bound_only:
        return scenario.bound_only
    if job.on_processors:
        return "computing and gloo share the processor's cores, so that each is as fast as the other lets it"
    if max(transfers) - min(transfers) > _WIDE * middle:
        return "transfer times on this network aren't known better"
    if max(host) - min(host) > _WIDE * middle:
        told = "" if job.step_time_ns else "; --step-time, the job's own step time, tells"
        return f"it hangs on how fast the host is without the profiler{told}"
    return None


@dataclass
class WhatIf:
    """Everything that was answered about a job."""

    replay: Replay
    answers: list[Answer]
    counts: Counts
    ranks: list[int]
    world: int
    steps: int
    host: HostSpeed
    diagnostics: list[Diagnostic]
    job: Job
    straggler_ms: dict[int, float] = field(
        default_factory=dict
    )  # by rank: what its being slower costs an iteration


def _together(middle: float, effects: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns the interval of independent effects, each given by the lengths at its two ends: squares of
    logarithms are added."""
    down = sum(np.log(min(*ends, middle) / middle) ** 2 for ends in effects)
    up = sum(np.log(max(*ends, middle) / middle) ** 2 for ends in effects)
    return float(middle * np.exp(-np.sqrt(down))), float(middle * np.exp(np.sqrt(up)))


def answers(job: Job, questions: Sequence[Question]) -> WhatIf:
    """Returns the replay and the answers to questions about a job."""
    replay = job.replay()
    job.asked = list(questions)
    given = [answer_to(job, question) for question in questions]
    return WhatIf(
        replay=replay,
        answers=given,
        counts=job.counts(),
        ranks=[r.rank for r in job.graph.ranks],
        world=job.world,
        steps=job.graph.step_count,
        host=job.host,
        diagnostics=job.diagnostics,
        job=job,
        straggler_ms=job.straggler_ms() if any(q.without_straggler for q in questions) else {},
    )
