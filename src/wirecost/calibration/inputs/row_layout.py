"""How a row of a table spreads and feeds its model: degrees, batches, sharding, recomputation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number, whole
from wirecost.costmodel.checks import check_chunks, check_global_batch, check_gpus, check_plan
from wirecost.costmodel.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout
from wirecost.costmodel.setup import default_data_parallel, trained_share
from wirecost.errors import SpecError
from wirecost.spec import Plan, Stack, Workload


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
        CannotExpressError: if they don't divide the row's GPUs, or contradict them.
    """
    tensor, pipeline, context = (whole(row, key, 1) for key in ("tp", "pp", "cp"))
    split = tensor * pipeline * context
    world, data = whole(row, "n_gpus", 0), whole(row, "dp", 0)
    if not world:
        if not data:
            batches = [whole(row, key, 0) for key in ("gbs", "mbs", "gas")]
            data = batches[0] // (batches[1] * batches[2]) if all(batches) else 1
            data = assumed["dp"] = max(data, 1)
        degrees = Degrees(tensor, pipeline, context, data)
        assumed["n_gpus"] = degrees.world
        return degrees
    if world % split:
        raise CannotExpressError(f"tp {tensor} x pp {pipeline} x cp {context} does not divide {world} GPUs")
    if data and data * split != world:
        if _leaves_degrees_open(row):
            assumed["dp"] = world // split
            return Degrees(tensor, pipeline, context, world // split)
        raise CannotExpressError(
            f"dp {data} contradicts {world} GPUs: with tp {tensor} x pp {pipeline} x cp {context} it is "
            f"{world // split}"
        )
    return Degrees(tensor, pipeline, context, world // split)


def _leaves_degrees_open(row: Mapping[str, str | None]) -> bool:
    """Returns whether a column of degrees is empty, which may mean that nothing is split, or that nobody wrote it
    down. Such a row isn't refused for numbers that contradict each other."""
    return any(not (row.get(key) or "").strip() for key in ("tp", "pp"))


def batches_of(row: Mapping[str, str | None], degrees: Degrees, assumed: dict[str, Any]) -> Batches:
    """Returns a row's batches; what is filled in goes to `assumed`.

    Raises:
        CannotExpressError: if neither the micro-batch nor the global batch is given, or if they contradict each
            other.
    """
    micro, accumulation, batch = whole(row, "mbs", 0), float(whole(row, "gas", 0)), number(row, "gbs")
    choose = not micro
    if choose:
        if not batch:
            raise CannotExpressError("mbs and gbs are empty")
        micro = 1
    elif batch and accumulation and batch != micro * accumulation * degrees.data:
        if _leaves_degrees_open(row):
            accumulation = assumed["gas"] = max(1.0, batch / (micro * degrees.data))
            return Batches(micro, accumulation, choose)
        raise CannotExpressError(
            f"gbs {batch:.0f} contradicts mbs {micro} x gas {accumulation:.0f} x dp {degrees.data}, which is "
            f"{micro * accumulation * degrees.data:.0f}"
        )
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


USUAL_LORA_RANK = 16
"""Rank of adapters in rows that don't state it. With ranks from 8 to 64 the time differs by less than 1 %."""


def lora_rank_of(row: Mapping[str, str | None], assumed: dict[str, Any]) -> int | None:
    """Returns the rank of the adapters that a row trains instead of the parameters; None for other rows.

    Raises:
        CannotExpressError: for parameters in 4 bits (QLoRA), for which there are no formulas.
    """
    for column in ("model", "framework", "sharding", "notes"):
        text = (row.get(column) or "").lower()
        if re.search(r"\bqlora\b", text):
            raise CannotExpressError(f"{column} names QLoRA: there are no formulas for parameters in 4 bits")
        if re.search(r"\blora\b", text):
            stated = re.search(r"\b(?:lora[\s_-]*)?(?:rank|r)[\s_=:-]*([0-9]{1,4})\b", text)
            if stated is None:
                assumed["lora_rank"] = USUAL_LORA_RANK
            return max(int(stated[1]), 1) if stated else USUAL_LORA_RANK
    return None


def layout_of_row(
    row: Mapping[str, str | None],
    workload: Workload,
    stack: Stack,
    degrees: Degrees,
    batches: Batches,
    assumed: dict[str, Any],
) -> Layout:
    """Returns a row's layout as the formulas read it; what is filled in goes to `assumed`."""
    framework = (row.get("framework") or "").lower()
    sharding = (row.get("sharding") or "").strip()
    if not sharding and degrees.data > 1 and "titan" not in framework:
        sharding = assumed["sharding"] = default_data_parallel(degrees.tensor, degrees.pipeline).value
    stage, bucketed, hybrid = _sharding(sharding, framework, degrees.data)
    recompute = (row.get("act_recompute") or "").strip().lower()
    if not recompute:
        recompute = assumed["act_recompute"] = stack.recomputation.default
    split = (row.get("seq_par") or "").strip().lower()
    if not split and degrees.tensor > 1:
        split = assumed["seq_par"] = "yes" if stack.tensor_parallel.sequence_parallel else "no"
    return Layout(
        tensor=float(degrees.tensor),
        pipeline=float(degrees.pipeline),
        data=float(degrees.data),
        micro_batch=float(batches.micro),
        accumulation=batches.accumulation,
        virtual=float(whole(row, "vpp", 1)),
        context=float(degrees.context),
        expert=float(whole(row, "ep", 1)),
        sharding=stage,
        bucketed=float(bucketed),
        node_sharding=float(hybrid),
        sequence_parallel=float(split in ("yes", "true", "1")),
        trained=trained_share(workload, lora_rank_of(row, assumed)),
        recompute=_recompute(recompute),
        bucket_bytes=_bucket_bytes(framework, stack, degrees.data),
        gradient_bytes=2.0 if "pure" in (row.get("precision") or "").lower() else 0.0,
    )


def check_row(
    row: Mapping[str, str | None], workload: Workload, stack: Stack, degrees: Degrees, batches: Batches
) -> None:
    """Checks that a row's layout and batches are possible, as those of predictions are checked.

    Raises:
        CannotExpressError: with the reason, if they are not.
    """
    virtual = whole(row, "vpp", 1)
    plan = Plan(
        name="row",
        tensor_parallel=degrees.tensor,
        pipeline_parallel=degrees.pipeline,
        context_parallel=degrees.context,
        expert_parallel=whole(row, "ep", 1),
        virtual_stages=virtual,
    )
    batch = number(row, "gbs")
    try:
        if per_node := whole(row, "gpus_per_node", 0):
            check_gpus(degrees.world, plan, per_node)
        check_plan(workload, plan, degrees.data, experts_split=stack.tensor_parallel.experts_split)
        if batch and not batches.choose:
            check_global_batch(int(batch), batches.micro, degrees.data)
        rounds = degrees.pipeline if batches.choose else int(batches.accumulation)
        check_chunks(workload, plan, rounds)
    except SpecError as error:
        raise CannotExpressError(str(error)) from error


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
