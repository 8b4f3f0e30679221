"""Converts a predicted iteration to a Breakdown with the parts and phases of a measured one."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from wirecost.costmodel.inputs import Layout, Machine
from wirecost.costmodel.iteration import Iteration as Times
from wirecost.costmodel.memory import Memory
from wirecost.costmodel.numbers import Number
from wirecost.costmodel.setup import Setup
from wirecost.costmodel.sharding import data_group
from wirecost.diagnostics import diagnostic
from wirecost.prediction.diagnostics import interval_and_diagnostics
from wirecost.prediction.interval import LEVEL
from wirecost.spec.plan import PLAN_OF_OPTIONS

MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "overhead", "total", "least")


@dataclass(frozen=True)
class Modelled:
    """The results of the formulas for a setup."""

    layout: Layout
    machine: Machine
    times: Times
    memory: Memory


def as_breakdown(setup: Setup, modelled: Modelled) -> Breakdown:
    """Returns the breakdown of a predicted iteration, with its interval and diagnostics."""
    times, memory, machine = modelled.times, modelled.memory, modelled.machine
    total = _ns(times.total_s)
    spread, diagnostics = interval_and_diagnostics(setup)
    if float(memory.total) > machine.memory_bytes:
        has, least, most = (
            size / 2**30 for size in (machine.memory_bytes, float(memory.least), float(memory.total))
        )
        if least > has:
            diagnostics.append(
                diagnostic("out_of_memory", f"needs {least:.1f} to {most:.1f} GiB of the GPU's {has:.0f}")
            )
        else:
            diagnostics.append(
                diagnostic(
                    "memory_uncertain",
                    f"needs {most:.1f} GiB of the GPU's {has:.0f} with the usual formats of '{setup.stack.name}', "
                    f"and {least:.1f} with the smallest",
                )
            )
    # A plan that options alone describe has no name of its own.
    named_plan = "" if setup.plan.name == PLAN_OF_OPTIONS else f", plan {setup.plan.name}"
    iteration = Iteration(rank=0, name="predicted", parts=_parts(times), phases=_phases(times, modelled.layout))
    return Breakdown(
        source=Source.PREDICTED,
        title=f"{setup.workload.name} on {setup.gpus} GPUs of {setup.cluster.name}{named_plan}",
        world_size=setup.gpus,
        iterations=(iteration,),
        collectives=tuple(_collectives(modelled)),
        network=_network(setup),
        tokens_per_iteration=setup.global_batch * setup.workload.sequence_length,
        interval=Interval(
            level=LEVEL,
            low_ns=round(total * math.exp(-spread)),
            high_ns=round(total * math.exp(spread)),
        ),
        diagnostics=tuple(diagnostics),
        details={
            "stack": setup.stack.name,
            "micro_batch": setup.micro_batch,
            "global_batch": setup.global_batch,
            "accumulation": setup.accumulation,
            "memory_bytes": {name: round(float(getattr(memory, name))) for name in MEMORY_PARTS},
            "rank_parameters": round(float(times.rank_parameters)),
            "pipeline_bubble_ns": _ns(times.bubble_s),
        },
    )


def _ns(seconds: Number) -> int:
    return round(float(seconds) * 1e9)


def _waits_ns(times: Times) -> int:
    """Returns the time in ns that stages wait for each other. In a measurement it is part of a receive, which is
    communication, and averaged over the ranks.
    """
    return _ns(times.bubble_s) + _ns(times.uneven_s)


def _parts(times: Times) -> Parts:
    total = _ns(times.total_s)
    exposed = _ns(times.exposed_comm_s) + _waits_ns(times)
    idle = _ns(times.host_s) + _ns(times.straggler_s) + _ns(times.other_s)
    busy = max(total - exposed - idle, 0)
    hidden = min(_ns(times.hidden_comm_s), busy)
    return Parts(
        window_ns=total,
        compute_only_ns=busy - hidden,
        overlapped_ns=hidden,
        exposed_comm_ns=exposed,
        exposed_memory_ns=0,
        idle_ns=total - busy - exposed,
    )


def _phases(times: Times, layout: Layout) -> dict[Phase, int]:
    total, waits = _ns(times.total_s), _waits_ns(times)
    rounds = float(layout.accumulation)
    tensor = _ns(times.tensor_s + times.context_expert_s)
    # One of three products of the vocabulary layer and of the embedding is in forward.
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
    return phases


def _network(setup: Setup) -> NetworkRecord:
    cluster = setup.cluster
    several = setup.gpus > cluster.gpus_per_node
    nominal = cluster.inter_node.rate * cluster.nics_per_node
    return NetworkRecord(
        name=cluster.inter_node.name if several else cluster.intra_node.name,
        emulated=bool(cluster.network_efficiency and cluster.network_efficiency.emulated),
        nominal_rate_bps=nominal if several else cluster.intra_node.rate,
    )


def _collectives(modelled: Modelled) -> list[Collective]:
    times, layout = modelled.times, modelled.layout
    data = data_group(layout, modelled.machine)
    rows = (
        ("tensor parallel", "tensor", times.tensor_s, layout.tensor),
        ("context and expert parallel", "context", times.context_expert_s, layout.context),
        ("pipeline send/recv", "pipeline", times.pipeline_s, layout.pipeline),
        ("gradients", "data", times.gradient_s - times.partial_gradient_s + times.hidden_comm_s, data.size),
        ("partial gradients", "tensor", times.partial_gradient_s, layout.tensor),
        ("parameters", "data", times.parameter_s, data.size),
        ("tied embedding", "embedding", times.embedding_sync_s, 2.0),
    )
    return [
        Collective(rank=0, op=op, group=name, group_size=int(size), count=1, duration_ns=_ns(seconds))
        for op, name, seconds, size in rows
        if _ns(seconds) > 0 and int(size) >= 1
    ]
