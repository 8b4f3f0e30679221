"""NeMo Framework: overrides of Megatron-Bridge's configuration as YAML."""

from __future__ import annotations

from typing import Any

import yaml

from wirecost.planner.emit.job import EmittedJob
from wirecost.spec import Precision, Recompute

VERSION = "Megatron-Bridge 0.3.1"


def write(job: EmittedJob) -> str:
    """Returns the YAML of overrides for a recipe of the model."""
    text: str = yaml.safe_dump(config(job), sort_keys=False)
    return (
        f"# {job.choice.label}\n"
        f"# Overrides of a recipe of Megatron-Bridge; {job.nodes} nodes of {job.gpus_of_node} GPUs\n{text}"
    )


def config(job: EmittedJob) -> dict[str, dict[str, Any]]:
    """Returns the sections of the configuration that the plan decides."""
    c, setup = job.choice, job.setup
    model: dict[str, Any] = {
        "tensor_model_parallel_size": c.tp,
        "pipeline_model_parallel_size": c.pp,
        "virtual_pipeline_model_parallel_size": c.vpp if c.vpp > 1 else None,
        "context_parallel_size": c.cp,
        "expert_model_parallel_size": c.ep,
        "sequence_parallel": c.sp,
        "seq_length": setup.workload.sequence_length,
        "recompute_granularity": None if c.recompute is Recompute.NONE else c.recompute.value,
    }
    if c.recompute is Recompute.FULL:
        model |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    if setup.workload.layers % (c.pp * c.vpp):
        model |= {
            "account_for_embedding_in_pipeline_split": True,
            "account_for_loss_in_pipeline_split": True,
        }
    if setup.plan.precision is not Precision.FP32:
        model[setup.plan.precision.value] = True
    instances = c.dp // job.shards if c.node_sharding else 1
    return {
        "model": model,
        "train": {"micro_batch_size": c.mb, "global_batch_size": setup.global_batch},
        "ddp": {
            "use_distributed_optimizer": c.zero >= 1,
            "overlap_grad_reduce": c.overlap,
            "overlap_param_gather": c.overlap and c.zero >= 1,
            "num_distributed_optimizer_instances": instances,
        },
        "optimizer": {"use_distributed_optimizer": c.zero >= 1},
        **({"dist": {"use_tp_pp_dp_mapping": True}} if c.dp_last else {}),
    }
