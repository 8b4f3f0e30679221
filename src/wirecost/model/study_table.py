"""The interconnect study's table: communication as a fraction of the iteration, or OOM (cluster A).

Columns: workload, protocol, scaling, gpus, global_batch, micro_batch, comm_fraction. The study trained with
Megatron-LM v3.0.2 in FP16, data parallel with one all-reduce after backward. Its GPT script recomputes activations
(`--activations-checkpoint-method uniform` in examples/pretrain_gpt_distributed.sh), those for BERT and T5 don't.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wirecost.model.columns import CannotExpressError, number
from wirecost.model.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, Layout, Machine, Shape
from wirecost.model.iteration import iterate, iterate_memory
from wirecost.model.machine import machine_of, stack_named
from wirecost.model.parameters import shape_of
from wirecost.spec import Cluster, Precision, Workload
from wirecost.spec.presets import named, names

CLUSTERS = {
    "rdma": "pinnacles-a-rdma",
    "ipoib": "pinnacles-a-ipoib",
    "tcp/ip": "pinnacles-a-tcp",
    "tcp": "pinnacles-a-tcp",
}
STACK = "megatron-lm-v3"


@dataclass
class FractionRow:
    """One row: `measured` is the fraction, None where the study ran out of memory."""

    id: str
    workload: str
    cluster: str
    shape: Shape
    layout: Layout
    measured: float | None
    nodes: float

    def machine(self) -> Machine:
        cluster = Cluster.model_validate(named("cluster", self.cluster))
        return machine_of(cluster, stack_named(STACK), Precision.FP16)


def fraction_row(row: Mapping[str, str | None], index: int) -> FractionRow:
    """One row of the table. Raises CannotExpressError with the reason."""
    name = re.sub(r"[^a-z0-9]+", "-", (row.get("workload") or "").lower()).strip("-")
    if name not in names("workload"):
        raise CannotExpressError(f"unknown workload '{(row.get('workload') or '')[:40]}'")
    cluster = CLUSTERS.get((row.get("protocol") or "").strip().lower())
    if cluster is None:
        raise CannotExpressError(f"unknown protocol '{(row.get('protocol') or '')[:40]}'")
    gpus, micro, batch = (number(row, key) for key in ("gpus", "micro_batch", "global_batch"))
    if not gpus:
        raise CannotExpressError("gpus is empty")
    if not micro:
        if not batch:
            raise CannotExpressError("micro_batch and global_batch are empty")
        micro = batch / gpus
    workload = Workload.model_validate(named("workload", name))
    text = (row.get("comm_fraction") or "").strip()
    measured = None
    if text and text.upper() != "OOM":
        measured = number(row, "comm_fraction")
    recomputes = workload.family == "gpt"
    layout = Layout(
        tensor=1.0,
        pipeline=1.0,
        data=gpus,
        micro_batch=micro,
        accumulation=max(1.0, (batch or micro * gpus) / (micro * gpus)),
        recompute=RECOMPUTE_FULL if recomputes else RECOMPUTE_NONE,
    )
    identity = "/".join(
        (row.get(key) or "") for key in ("workload", "protocol", "scaling", "gpus", "global_batch")
    )
    return FractionRow(
        (row.get("id") or "").strip() or identity or f"row {index}",
        workload.name,
        cluster,
        shape_of(workload),
        layout,
        measured,
        gpus / 2,
    )


def predict_fraction(row: FractionRow, machine: Machine, *, ignore_memory: bool = False) -> float | None:
    """The communication fraction, None where the configuration does not fit in memory."""
    if not ignore_memory and float(iterate_memory(row.shape, row.layout, machine).total) > machine.memory_bytes:
        return None
    result = iterate(row.shape, row.layout, machine)
    return float(result.exposed_comm_s / result.total_s)
