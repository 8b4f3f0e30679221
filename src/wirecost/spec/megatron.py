"""Models that Megatron-Core trains instead of wirecost's own engine: `engine: megatron` in a study."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from wirecost.errors import SpecError
from wirecost.spec.base import Spec
from wirecost.spec.job import Job
from wirecost.spec.plan import (
    DataParallel,
    GradientTraffic,
    PipelineSchedule,
    Plan,
    RankOrder,
)
from wirecost.spec.presets import named
from wirecost.spec.workload import Family, Workload
from wirecost.spec.yaml import validate

MODULE = "wirecost.megatron"
"""Module that trains in each rank."""
DATA_PARALLEL = (DataParallel.ALL_REDUCE, DataParallel.DDP, DataParallel.ZERO1)


class MegatronJob(Spec):
    """A model that Megatron-Core trains on GPUs, one rank for each.

    Attributes:
        name: name of the workload in tables and directories.
        engine: `megatron`.
        workload: name of a preset, or dimensions.
        plan: name of a preset, or a plan. `zero1` is Megatron's distributed optimizer.
        micro_batch: number of sequences that a rank computes at once.
        micro_batches: number of micro-batches of an iteration on each data-parallel rank.
        transformer_engine: whether layers are those of Transformer Engine, which must be installed.
    """

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    engine: Literal["megatron"] = "megatron"
    workload: Annotated[Workload, BeforeValidator(lambda v: named("workload", v))]
    plan: Annotated[Plan, BeforeValidator(lambda v: named("plan", v))]
    micro_batch: PositiveInt
    micro_batches: PositiveInt = 1
    transformer_engine: bool = False

    @model_validator(mode="after")
    def _can_be_trained(self) -> MegatronJob:
        reason = _refused_workload(self.workload) or _refused_plan(self.plan) or self._refused_together()
        if reason is not None:
            raise ValueError(f"engine megatron: {reason}")
        return self

    def _refused_together(self) -> str | None:
        workload, plan = self.workload, self.plan
        if plan.sequence_parallel and not self.transformer_engine:
            return "sequence_parallel needs transformer_engine: true, since PyTorch's norms don't support it"
        tensor, stages = plan.tensor_parallel, plan.pipeline_parallel
        for what, number in (("heads", workload.heads), ("kv_heads", workload.key_value_heads)):
            if number % tensor:
                return f"{what} {number} do not divide over tensor_parallel {tensor}"
        if stages > 1 and workload.family is Family.T5:
            return "Megatron-Core has no pipeline for t5; use a plan with pipeline_parallel: 1"
        if workload.layers % stages:
            return f"{workload.layers} layers do not divide over pipeline_parallel {stages}"
        return None

    def as_job(self) -> Job:
        """Returns the command that trains it."""
        settings = self.model_dump_json(exclude={"name", "engine"}, exclude_defaults=True)
        return Job(name=self.name, command=(sys.executable, "-m", MODULE, settings))


def is_megatron(value: Any) -> bool:
    """Returns whether an entry of a study's workloads names Megatron-Core as its engine."""
    return isinstance(value, dict) and "engine" in value


def settings_of(job: Job) -> MegatronJob | None:
    """Returns what Megatron-Core trains if a job is its command, or None.

    Raises:
        SpecError: if the settings can't be trained.
    """
    if job.arguments[1:3] != ("-m", MODULE) or len(job.arguments) != 4:
        return None
    return settings_from(job.arguments[3], job.name)


def settings_from(text: str, name: str = "megatron") -> MegatronJob:
    """Returns the settings in a command's argument, which is JSON.

    Raises:
        SpecError: if it can't be read, or can't be trained.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SpecError(f"settings of Megatron-Core: is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise SpecError("settings of Megatron-Core: must be keys and values, as in a study")
    return validate(MegatronJob, {**data, "name": name}, "settings of Megatron-Core")


def _refused_workload(workload: Workload) -> str | None:
    """Returns why Megatron-Core doesn't get a workload, or None."""
    refused = {
        "mixture_of_experts": workload.mixture_of_experts is not None,
        "latent_attention": workload.latent_attention is not None,
        "multi_token_prediction": workload.multi_token_prediction > 0,
        "parallel_block": workload.parallel_block,
        "sliding_window": workload.sliding_window is not None,
        f"positions {workload.positions}": workload.positions in ("relative", "alibi"),
        f"activation {workload.activation}": workload.activation == "geglu",
        "norm rmsnorm with bert": workload.norm == "rmsnorm" and workload.family is Family.BERT,
    }
    what = next((what for what, is_so in refused.items() if is_so), None)
    return what and f"{what} is not supported with workload '{workload.name}'; write out its dimensions without it"


def _refused_plan(plan: Plan) -> str | None:
    """Returns why Megatron-Core doesn't get a plan, or None."""
    if plan.data_parallel not in DATA_PARALLEL:
        return f"data_parallel {plan.data_parallel} is not supported; supported: {', '.join(DATA_PARALLEL)}"
    refused = {
        "sharding_group node": plan.sharding_group != "all",
        "context_parallel": plan.context_parallel > 1,
        "expert_parallel": plan.expert_parallel > 1,
        "matrix_precision": plan.matrix_precision is not None,
        "tensor_overlap": bool(plan.tensor_overlap),
        f"gradient_traffic {plan.gradient_traffic}": plan.gradient_traffic is not GradientTraffic.NATIVE,
        f"rank_order {plan.rank_order}": plan.rank_order is not RankOrder.TENSOR_FIRST,
        "compile": plan.compile,
        f"pipeline_schedule {plan.pipeline_schedule}": plan.pipeline_parallel > 1
        and plan.pipeline_schedule is not PipelineSchedule.ONE_F_ONE_B,
    }
    what = next((what for what, is_so in refused.items() if is_so), None)
    return what and f"{what} is not supported; use a plan without it"
