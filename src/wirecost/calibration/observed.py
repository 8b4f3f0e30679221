"""What one run tells the fit: its configuration and where its time went."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wirecost.breakdown import Breakdown, Phase, Source
from wirecost.errors import SpecError
from wirecost.spec import DataParallel, Experiment, Plan, Workload

NOISE = {"forward": 0.05, "backward": 0.05, "optimizer": 0.1, "other": 0.4, "device": 0.03, "window": 0.04}
"""Standard deviation of log(measured) that each part is taken to have: repeated runs on quiet machines differ by a
few percent; what is left over (`other`) holds whatever else happened."""
LAUNCH_BOUND = "launch_bound"
"""The note of a run whose device waited for the host to launch its kernels (wirecost.study.launches)."""
FEWEST_ITERATIONS = 4
"""That say something about how unsteady they are."""
MOST_MEDIANS = 3.0
"""That an iteration counts for: what held it up longer is no pace."""
DISTURBED = 3.0
"""How much noisier a run is when other programs kept the processors busy."""


@dataclass(frozen=True)
class Observed:
    """A run of `ranks` ranks, `ranks_per_host` on each host. `parts` in seconds by the keys of NOISE."""

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
    device: str | None = None  # the GPU's or the processor's name
    on_cpu: bool = False
    cores: int | None = None
    machine_cores: int | None = None  # where the run was kept to fewer
    memory_bytes: int | None = None
    noise: float = 1.0  # how many times noisier than NOISE
    launch_bound: bool = False  # the device waited for the host
    jitter: float | None = None  # of the time from iteration to iteration: its deviation over its mean
    doubts: tuple[str, ...] = ()

    @property
    def threads(self) -> int:
        """Of each rank, as the engine deals them out."""
        return max(1, (self.cores or 1) // self.ranks)


def from_engine(
    experiment: Experiment, breakdown: Breakdown, environment: dict[str, Any], name: str
) -> Observed | None:
    """An engine's run; None where compute can't be told from communication in it."""
    overlapping = experiment.ranks > 1 and experiment.plan.data_parallel is not DataParallel.ALL_REDUCE
    time = breakdown.iteration_ns()
    if overlapping or experiment.plan.model_parallel > 1 or time is None:
        return None

    on_cpu = experiment.device == "cpu"
    launch_bound = any(w.code == LAUNCH_BOUND for w in breakdown.diagnostics)

    def seconds(*phases: Phase) -> float:
        if on_cpu or launch_bound:
            return sum(_mean_ns(breakdown, phase) for phase in phases) * 1e-9
        found = [breakdown.phase_ns(phase) for phase in phases]
        return sum(spread.median for spread in found if spread is not None) * 1e-9

    parts = {
        "forward": seconds(Phase.FORWARD),
        "backward": seconds(Phase.BACKWARD),
        "optimizer": seconds(Phase.OPTIMIZER),
        "other": seconds(Phase.DATA, Phase.OTHER),
    }
    doubts = tuple(w.message for w in breakdown.diagnostics if w.code == "busy_machine")
    gpus = environment.get("gpus") or [None]
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
        device=environment.get("processor") if on_cpu else gpus[0],
        on_cpu=on_cpu,
        cores=environment.get("cores") if on_cpu else None,
        machine_cores=environment.get("machine_cores") if on_cpu else None,
        memory_bytes=environment.get("memory_bytes") if on_cpu else None,
        noise=DISTURBED if doubts else 1.0,
        launch_bound=launch_bound,
        jitter=_jitter(breakdown),
        doubts=doubts,
    )


def _mean_ns(breakdown: Breakdown, phase: Phase) -> float:
    """Of a run at its host's pace, which goes between two paces: their median is the one or the other, and says
    little of what many ranks will have. An iteration counts for at most `MOST_MEDIANS`."""
    return statistics.fmean(_clipped([i.phases.get(phase, 0) for i in breakdown.iterations]))


def _clipped(times: Sequence[float]) -> list[float]:
    most = MOST_MEDIANS * statistics.median(times)
    return [min(time, most) for time in times]


def _jitter(breakdown: Breakdown) -> float | None:
    """Of one rank: several have the slowest one's pace together."""
    times = [i.parts.window_ns for i in breakdown.iterations]
    if breakdown.world_size > 1 or len(times) < FEWEST_ITERATIONS:
        return None
    times = _clipped(times)
    return statistics.stdev(times) / statistics.mean(times)


def from_trace(
    breakdown: Breakdown,
    name: str,
    *,
    workload: Workload | None,
    plan: Plan | None,
    micro_batch: int | None,
    global_batch: int | None,
    gpus_per_node: int | None,
) -> Observed:
    """Somebody's trace: it holds kernels, not the model, so that dimensions and plan must be said.

    Raises:
        SpecError: where they aren't, or don't fit the trace's world.
    """
    if workload is None or plan is None or micro_batch is None:
        raise SpecError(
            f"{name}: a trace doesn't say what was trained: give --workload, --plan and --micro-batch "
            "(and --global-batch where micro-batches are accumulated)"
        )
    ranks = breakdown.world_size
    if ranks % plan.model_parallel:
        raise SpecError(
            f"{name}: {ranks} ranks do not divide over plan '{plan.name}', a multiple of {plan.model_parallel}"
        )
    step = micro_batch * (ranks // plan.model_parallel)
    batch = global_batch or step
    if batch % step:
        raise SpecError(
            f"{name}: global_batch {batch} is no multiple of micro-batch x data-parallel ranks = {step}"
        )
    time = breakdown.iteration_ns()
    shares = [breakdown.part_share(f"{part}_ns") for part in ("compute_only", "overlapped", "exposed_comm")]
    if time is None or any(share is None for share in shares):
        raise SpecError(f"{name}: no iteration in it to calibrate on")
    compute, both, exposed = (share.median for share in shares if share is not None)
    iteration = time.median * 1e-9
    return Observed(
        name=name,
        source=breakdown.source,
        workload=workload,
        plan=plan,
        micro_batch=micro_batch,
        global_batch=batch,
        ranks=ranks,
        ranks_per_host=min(gpus_per_node or ranks, ranks),
        parts={"device": (compute + both) * iteration, "window": (1 - exposed) * iteration},
        iteration_s=iteration,
    )
