"""What one engine run gives a fit: its configuration and where its time went."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from wirecost.breakdown import Breakdown, Phase, Source
from wirecost.diagnostics import Diagnostic
from wirecost.spec import DataParallel, Experiment, Plan, Workload

NOISE = {"forward": 0.05, "backward": 0.05, "optimizer": 0.1, "other": 0.4, "device": 0.03, "window": 0.04}
"""Standard deviation of log(measured) that each part is taken to have: repeated runs on quiet machines differ by a
few percent; `other` holds whatever else happened."""
LAUNCH_BOUND, BUSY_MACHINE = "launch_bound", "busy_machine"
"""Codes of diagnostics: of a run whose device waited for the host to launch its kernels (wirecost.study.launches),
and of one during which other programs kept the processors busy."""
FEWEST_ITERATIONS = 4
"""Iterations from which on their scatter says something."""
MOST_MEDIANS = 3.0
"""An iteration counts for at most so many medians: what held it up longer is not the host's pace."""
MOST_CORES = 1 << 16
DISTURBED = 3.0
"""How much noisier a run is when other programs kept the processors busy."""


class Environment(BaseModel):
    """What a run's environment.json says of its machine."""

    model_config = ConfigDict(extra="ignore", strict=True)

    processor: str | None = None
    cores: Annotated[int, Field(ge=1, le=MOST_CORES)] | None = None
    machine_cores: Annotated[int, Field(ge=1, le=MOST_CORES)] | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=1 << 60)] | None = None
    gpus: list[str] | None = None


@dataclass(frozen=True)
class Observed:
    """A run of `ranks` ranks, `ranks_per_host` on each host. `parts` are seconds by the keys of NOISE."""

    name: str
    source: Source
    workload: Workload
    plan: Plan
    micro_batch: int
    global_batch: int
    ranks: int
    ranks_per_host: int
    parts: dict[str, float]
    iteration_s: float
    device: str | None = None
    """The GPU's or the processor's name."""
    on_cpu: bool = False
    cores: int | None = None
    machine_cores: int | None = None
    """Where the run was kept to fewer."""
    memory_bytes: int | None = None
    noise: float = 1.0
    """How many times noisier than NOISE."""
    launch_bound: bool = False
    """Whether the device waited for the host."""
    jitter: float | None = None
    """Standard deviation of the time from iteration to iteration, over its mean."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What makes the run less certain."""

    @property
    def threads(self) -> int:
        """Threads of each rank, as the engine deals them out."""
        return max(1, (self.cores or 1) // self.ranks)


def from_engine(
    experiment: Experiment, breakdown: Breakdown, environment: Environment, name: str
) -> Observed | None:
    """Returns an engine's run; None if compute can't be told from communication in it."""
    overlapping = experiment.ranks > 1 and experiment.plan.data_parallel is not DataParallel.ALL_REDUCE
    time = breakdown.iteration_ns()
    if overlapping or experiment.plan.model_parallel > 1 or time is None:
        return None
    on_cpu = experiment.device == "cpu"
    launch_bound = any(w.code == LAUNCH_BOUND for w in breakdown.diagnostics)

    def seconds(*phases: Phase) -> float:
        if on_cpu or launch_bound:
            return sum(_mean_ns(breakdown, phase) for phase in phases) * 1e-9
        spreads = [breakdown.phase_ns(phase) for phase in phases]
        return sum(spread.median for spread in spreads if spread is not None) * 1e-9

    parts = {
        "forward": seconds(Phase.FORWARD),
        "backward": seconds(Phase.BACKWARD),
        "optimizer": seconds(Phase.OPTIMIZER),
        "other": seconds(Phase.DATA, Phase.OTHER),
    }
    disturbed = tuple(d for d in breakdown.diagnostics if d.code == BUSY_MACHINE)
    gpus = environment.gpus or [None]
    return Observed(
        name=name,
        source=breakdown.source,
        workload=experiment.workload,
        plan=experiment.plan,
        micro_batch=experiment.micro_batch,
        global_batch=experiment.global_batch,
        ranks=experiment.ranks,
        ranks_per_host=experiment.ranks_per_host,
        parts={key: value for key, value in parts.items() if value > 0},
        iteration_s=time.median * 1e-9,
        device=environment.processor if on_cpu else gpus[0],
        on_cpu=on_cpu,
        cores=environment.cores if on_cpu else None,
        machine_cores=environment.machine_cores if on_cpu else None,
        memory_bytes=environment.memory_bytes if on_cpu else None,
        noise=DISTURBED if disturbed else 1.0,
        launch_bound=launch_bound,
        jitter=_jitter(breakdown),
        diagnostics=disturbed,
    )


def _mean_ns(breakdown: Breakdown, phase: Phase) -> float:
    """Returns the mean time of a phase of a run at its host's pace. A host goes between two paces: their median is
    one of them, and says little of what many ranks will have."""
    return statistics.fmean(_clipped([i.phases.get(phase, 0) for i in breakdown.iterations]))


def _clipped(times: Sequence[float]) -> list[float]:
    most = MOST_MEDIANS * statistics.median(times)
    return [min(time, most) for time in times]


def _jitter(breakdown: Breakdown) -> float | None:
    """Returns the jitter of a run of one rank; several ranks have the pace of the slowest one together."""
    times = [i.parts.window_ns for i in breakdown.iterations]
    if breakdown.world_size > 1 or len(times) < FEWEST_ITERATIONS:
        return None
    times = _clipped(times)
    return statistics.stdev(times) / statistics.mean(times)
