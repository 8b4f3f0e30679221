"""`predict`: specifications in, a Breakdown with an interval out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wirecost.breakdown import (
    Breakdown,
    Collective,
    Interval,
    Iteration,
    NetworkRecord,
    Parts,
    Phase,
    Source,
)
from wirecost.diagnostics import diagnostic
from wirecost.errors import SpecError
from wirecost.model.dataparallel import data_group
from wirecost.model.flops import model_flops
from wirecost.model.inputs import Layout, Machine, Shape
from wirecost.model.iteration import Iteration as Times
from wirecost.model.iteration import iterate, iterate_memory
from wirecost.model.machine import machine_of
from wirecost.model.memory import Memory
from wirecost.model.parameters import shape_of
from wirecost.model.range import outside_range
from wirecost.model.seen import as_seen
from wirecost.model.setup import Setup, layout_of

LEVEL = 0.9
LONGEST_S, MOST_BYTES = 1e7, 1e18
"""Of an iteration. More is no prediction but a mistyped number."""


@dataclass(frozen=True)
class Prediction:
    """A prediction with what it was made from; `breakdown` is the part that compares and is stored."""

    made: Setup
    shape: Shape
    layout: Layout
    machine: Machine
    times: Times
    memory: Memory
    breakdown: Breakdown

    @property
    def fits(self) -> bool:
        return float(self.memory.total) <= self.machine.memory_bytes

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization, without recomputation (arXiv:2204.02311, appendix B)."""
        flops = float(model_flops(self.shape, batch=self.made.global_batch))
        return flops / (float(self.times.total_s) * self.made.gpus * self.machine.attention_peak_flops)

    @property
    def tokens_per_s(self) -> float:
        return self.made.global_batch * self.made.workload.sequence_length / float(self.times.total_s)


def predict(made: Setup, *, machine: Machine | None = None) -> Prediction:
    """Predicts one iteration of the slowest rank. `machine` replaces the preset's (a calibrated one)."""
    shape = shape_of(made.workload)
    layout = layout_of(made)
    if machine is None:
        machine = machine_of(made.cluster, made.stack, made.plan.precision, made.plan.matrix_precision)
        machine = as_seen(machine, made.stack, made.workload, made.micro_batch)
    with np.errstate(all="ignore"):
        times = iterate(shape, layout, machine)
        held = iterate_memory(shape, layout, machine)
    _check_possible(made, times, held)
    breakdown = _breakdown(made, shape, layout, machine, times, held)
    return Prediction(made, shape, layout, machine, times, held, breakdown)


def _check_possible(made: Setup, times: Times, held: Memory) -> None:
    """Raises SpecError for results that numbers far outside any machine's give."""
    if made.global_batch * made.workload.sequence_length >= MOST_BYTES:
        raise SpecError(f"global_batch: {made.global_batch} sequences are more than any job trains on")
    total_s, total_bytes = float(times.total_s), float(held.total)
    if not (0 < total_s < LONGEST_S and 0 <= total_bytes < MOST_BYTES):
        raise SpecError(
            "the numbers of this workload, plan, cluster and stack together give no possible iteration: "
            f"{total_s:.3g} s and {total_bytes:.3g} bytes"
            if math.isfinite(total_s) and math.isfinite(total_bytes)
            else "the numbers of this workload, plan, cluster and stack together give no finite iteration"
        )


def _ns(seconds: Any) -> int:
    return round(float(seconds) * 1e9)


def _breakdown(
    made: Setup, shape: Shape, layout: Layout, machine: Machine, times: Times, held: Memory
) -> Breakdown:
    total = _ns(times.total_s)
    # As it is measured: a stage waits for another one inside a receive, which is communication, and it is the mean
    # over the ranks that counts.
    waits = _ns(times.bubble_s) + _ns(times.uneven_s)
    exposed = _ns(times.exposed_comm_s) + waits
    idle = _ns(times.host_s) + _ns(times.straggler_s) + _ns(times.other_s)
    busy = max(total - exposed - idle, 0)
    hidden = min(_ns(times.hidden_comm_s), busy)
    parts = Parts(
        window_ns=total,
        compute_only_ns=busy - hidden,
        overlapped_ns=hidden,
        exposed_comm_ns=exposed,
        exposed_memory_ns=0,
        idle_ns=total - busy - exposed,
    )
    rounds = float(layout.accumulation)
    tensor = _ns(times.tensor_s + times.context_expert_s)
    # Of the vocabulary layer's and the embedding's three products one is forward's.
    forward = max(_ns(float(times.forward_s + times.ends_s / 3) * rounds - times.uneven_s / 3) - tensor // 2, 0)
    phases = {
        Phase.FORWARD: forward,
        Phase.TENSOR_PARALLEL: tensor,
        Phase.GRAD_SYNC: _ns(times.gradient_s),
        Phase.PARAM_GATHER: _ns(times.parameter_s),
        Phase.PIPELINE_RECV_FORWARD: _ns(times.pipeline_s) // 2 + waits // 2,
        Phase.PIPELINE_RECV_BACKWARD: _ns(times.pipeline_s) // 2 + waits // 2,
        Phase.EMBEDDING_SYNC: _ns(times.embedding_sync_s),
        Phase.OPTIMIZER: _ns(times.optimizer_s),
        Phase.OTHER: _ns(times.other_s) + _ns(times.straggler_s),
    }
    phases[Phase.BACKWARD] = max(total - sum(phases.values()), 0)
    over = sum(phases.values()) - total
    if over > 0:
        phases[Phase.FORWARD] = max(phases[Phase.FORWARD] - over, 0)
    spread, warnings = outside_range(made, machine)
    if float(held.total) > machine.memory_bytes:
        warnings.append(
            diagnostic(
                "out_of_memory",
                f"needs {float(held.total) / 2**30:.1f} GiB of the GPU's {machine.memory_bytes / 2**30:.0f}",
            )
        )
    nominal = made.cluster.inter_node.rate * made.cluster.nics_per_node
    several = made.gpus > made.cluster.gpus_per_node
    return Breakdown(
        source=Source.PREDICTED,
        title=f"{made.workload.name} on {made.gpus} GPUs of {made.cluster.name}, plan {made.plan.name}",
        world_size=made.gpus,
        iterations=(Iteration(rank=0, name="predicted", parts=parts, phases=phases),),
        collectives=tuple(_collectives(made, layout, machine, times)),
        network=NetworkRecord(
            name=made.cluster.inter_node.name if several else made.cluster.intra_node.name,
            emulated=bool(made.cluster.network_efficiency and made.cluster.network_efficiency.emulated),
            nominal_rate_bps=nominal if several else made.cluster.intra_node.rate,
        ),
        tokens_per_iteration=made.global_batch * made.workload.sequence_length,
        interval=Interval(
            level=LEVEL,
            low_ns=round(total * math.exp(-spread)),
            high_ns=round(total * math.exp(spread)),
        ),
        diagnostics=tuple(warnings),
        details={
            "stack": made.stack.name,
            "micro_batch": made.micro_batch,
            "global_batch": made.global_batch,
            "accumulation": made.accumulation,
            "memory_bytes": {
                name: round(float(getattr(held, name)))
                for name in ("weights", "gradients", "optimizer", "activations", "logits", "overhead", "total")
            },
            "rank_parameters": round(float(times.rank_parameters)),
            "pipeline_bubble_ns": _ns(times.bubble_s),
        },
    )


def _collectives(made: Setup, layout: Layout, machine: Machine, times: Times) -> list[Collective]:
    found = []
    data = data_group(layout, machine)
    rows = (
        ("tensor parallel", "tensor", times.tensor_s, layout.tensor),
        ("context and expert parallel", "context", times.context_expert_s, layout.context),
        ("pipeline send/recv", "pipeline", times.pipeline_s, layout.pipeline),
        ("gradients", "data", times.gradient_s + times.hidden_comm_s, data.size),
        ("parameters", "data", times.parameter_s, data.size),
        ("tied embedding", "embedding", times.embedding_sync_s, 2.0),
    )
    for op, name, seconds, size in rows:
        if _ns(seconds) > 0 and int(size) >= 1:
            found.append(
                Collective(rank=0, op=op, group=name, group_size=int(size), count=1, duration_ns=_ns(seconds))
            )
    return found


def largest_micro_batch(made: Setup, *, limit: int = 4096) -> int | None:
    """The largest micro-batch that fits in memory, None where not even 1 does.

    Batches are taken as the plan's ranks need them; the global batch grows with them.
    """
    shape, layout = shape_of(made.workload), layout_of(made)
    machine = machine_of(made.cluster, made.stack, made.plan.precision, made.plan.matrix_precision)

    def fits(size: int) -> bool:
        trial = replace(layout, micro_batch=float(size))
        return float(iterate_memory(shape, trial, machine).total) <= machine.memory_bytes

    if not fits(1):
        return None
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
