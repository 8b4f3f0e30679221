"""How a row of a table spreads and feeds its model: degrees, batches, sharding, recomputation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number, whole
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout
from wirecost.spec import Stack, Workload


@dataclass(frozen=True)
class Degrees:
    """Ranks of a row in each direction."""

    tensor: int
    pipeline: int
    context: int
    data: int

    @property
    def world(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.context * self.data


@dataclass(frozen=True)
class Batches:
    """Micro-batch and accumulated micro-batches of a row; `choose`: the row leaves them open."""

    micro: int
    accumulation: float
    choose: bool


def degrees_of(row: Mapping[str, str | None], assumed: dict[str, Any]) -> Degrees:
    """Returns a row's degrees; what is filled in goes to `assumed`.

    Raises:
        CannotExpressError: if they don't divide the row's GPUs.
    """
    tensor, pipeline, context = (whole(row, key, 1) for key in ("tp", "pp", "cp"))
    split = tensor * pipeline * context
    world, data = whole(row, "n_gpus", 0), whole(row, "dp", 0)
    if not world:
        degrees = Degrees(tensor, pipeline, context, data or 1)
        assumed["n_gpus"] = degrees.world
        return degrees
    if world % split:
        raise CannotExpressError(f"tp {tensor} x pp {pipeline} x cp {context} does not divide {world} GPUs")
    if data and data * split != world:
        assumed["dp"] = world // split
    return Degrees(tensor, pipeline, context, world // split)


def batches_of(row: Mapping[str, str | None], degrees: Degrees, assumed: dict[str, Any]) -> Batches:
    """Returns a row's batches; what is filled in goes to `assumed`.

    Raises:
        CannotExpressError: if neither the micro-batch nor the global batch is given.
    """
    micro, accumulation, batch = whole(row, "mbs", 0), float(whole(row, "gas", 0)), number(row, "gbs")
    choose = not micro
    if choose:
        if not batch:
            raise CannotExpressError("mbs and gbs are empty")
        micro = 1
    if not accumulation:
        accumulation = max(1.0, batch / (micro * degrees.data)) if batch else float(degrees.pipeline)
        if not batch:
            assumed["gas"] = accumulation
    titan = "titan" in (row.get("framework") or "").lower()
    if titan and degrees.pipeline > 1 and accumulation <= 1 and micro > 1:
        # torchtitan's batch size is a rank's whole batch, which its schedules cut into micro-batches of one.
        micro, accumulation = 1, float(micro)
        assumed.update(mbs=1, gas=accumulation)
    return Batches(micro, accumulation, choose)


def layout_of_row(
    row: Mapping[str, str | None], workload: Workload, stack: Stack, degrees: Degrees, batches: Batches
) -> Layout:
    """Returns a row's layout as the formulas read it."""
    framework = (row.get("framework") or "").lower()
    stage, bucketed, hybrid = _sharding(row.get("sharding") or "", framework, degrees.data)
    recompute = (row.get("act_recompute") or "").strip().lower() or stack.recomputation.default
    sequence_parallel = (row.get("seq_par") or "").lower() in ("yes", "true", "1")
    if not (row.get("seq_par") or "").strip() and degrees.tensor > 1 and stack.tensor_parallel.sequence_parallel:
        sequence_parallel = True
    virtual = whole(row, "vpp", 1)
    if virtual * degrees.pipeline > workload.layers + 2:  # embedding and loss may count as layers
        virtual = max(1, workload.layers // degrees.pipeline)
    return Layout(
        tensor=float(degrees.tensor),
        pipeline=float(degrees.pipeline),
        data=float(degrees.data),
        micro_batch=float(batches.micro),
        accumulation=batches.accumulation,
        virtual=float(virtual),
        context=float(degrees.context),
        expert=float(whole(row, "ep", 1)),
        sharding=stage,
        bucketed=float(bucketed),
        node_sharding=float(hybrid),
        sequence_parallel=float(sequence_parallel),
        recompute=_recompute(recompute),
        bucket_bytes=_bucket_bytes(framework, stack, degrees.data),
        gradient_bytes=2.0 if "pure" in (row.get("precision") or "").lower() else 0.0,
    )


def _sharding(text: str, framework: str, data: int) -> tuple[float, bool, bool]:
    """Returns the ZeRO stage, whether gradients leave in buckets, whether shards stay in a node."""
    low = text.lower()
    hybrid = "hybrid" in low or "hsdp" in low
    stage = re.search(r"zero[\s_-]*(?:stage)?[\s_-]*([0-3])", low)
    if stage and stage[1] != "0":
        return float(stage[1]), True, hybrid
    if "grad_op" in low:
        return 2.0, True, hybrid
    if any(word in low for word in ("fsdp", "full_shard", "hsdp", "hybrid", "fully")):
        return 3.0, True, hybrid
    if "dist" in low:
        return 1.0, True, False
    if not low and "titan" in framework and data > 1:
        return 3.0, True, False  # torchtitan shards by default (its data_parallel_shard_degree is -1)
    return 0.0, "ddp" in low, False


def _bucket_bytes(framework: str, stack: Stack, data: int) -> float:
    """Returns the bytes of the buckets in which a row's gradients leave: Megatron-Core's, which grow with the
    ranks (DistributedDataParallelConfig: the larger of 40 million parameters and a million for each rank), or
    DDP's 25 MiB.
    """
    if "ddp" in framework or "horovod" in framework:
        return 25.0 * 2**20
    return max(40e6, 1e6 * data) * stack.data_parallel.gradient_bytes


def _recompute(text: str) -> float:
    if "full" in text:
        return RECOMPUTE_FULL
    return RECOMPUTE_SELECTIVE if "select" in text or text in ("op", "sac") else RECOMPUTE_NONE
