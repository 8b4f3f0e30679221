"""What a trace of somebody's job gives a fit. It holds kernels, not the model: what was trained must be said."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.breakdown import Breakdown
from wirecost.calibration.inputs.benchmarks import FITTED_OPS, Measured
from wirecost.calibration.inputs.runs import Observed
from wirecost.errors import SpecError
from wirecost.spec import Plan, Workload


@dataclass(frozen=True)
class TraceOptions:
    """What traces don't say and the user must."""

    workload: Workload | None = None
    plan: Plan | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    gpus_per_node: int | None = None


def from_trace(breakdown: Breakdown, name: str, options: TraceOptions) -> Observed:
    """Returns a trace as a run.

    Raises:
        SpecError: if the options don't say what was trained, or don't fit the trace's ranks.
    """
    workload, plan, micro_batch = options.workload, options.plan, options.micro_batch
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
    batch = options.global_batch or step
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
        ranks_per_host=min(options.gpus_per_node or ranks, ranks),
        parts={"device": (compute + both) * iteration, "window": (1 - exposed) * iteration},
        iteration_s=iteration,
    )


def collectives_of(breakdown: Breakdown, gpus_per_node: int | None) -> list[Measured]:
    """Returns the collectives of a trace that links can be fitted to. Calls of one kind are summed: their mean
    size and time lie on the same straight line."""
    collectives = []
    for call in breakdown.collectives:
        time_ns = call.transfer_ns if call.transfer_ns is not None else call.duration_ns
        ranks = call.group_size
        if call.op in FITTED_OPS and call.bytes and ranks and ranks > 1 and time_ns:
            hosts = max(1, ranks // (gpus_per_node or ranks))
            size, seconds = call.bytes / call.count, time_ns / call.count * 1e-9
            collectives.append(Measured(call.op, ranks, hosts, 1, size, seconds))
    return collectives
