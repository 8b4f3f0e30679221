"""DeepSpeed: its JSON configuration."""

from __future__ import annotations

import json
from typing import Any

from wirecost.planner.emit.job import EmittedJob
from wirecost.spec import Precision, Recompute

VERSION = "DeepSpeed 0.19.8"


def write(job: EmittedJob) -> str:
    """Returns the JSON configuration."""
    return json.dumps(config(job), indent=2) + "\n"


def config(job: EmittedJob) -> dict[str, Any]:
    """Returns the configuration. Stages of a pipeline and tensor parallelism are the script's own."""
    c, setup = job.choice, job.setup
    zero: dict[str, Any] = {"stage": c.zero}
    if c.zero >= 1:
        zero["overlap_comm"] = c.overlap
    result: dict[str, Any] = {
        "train_batch_size": setup.global_batch,
        "train_micro_batch_size_per_gpu": c.mb,
        "gradient_accumulation_steps": setup.accumulation,
        "zero_optimization": zero,
    }
    if setup.plan.precision is not Precision.FP32:
        result[setup.plan.precision.value] = {"enabled": True}
    if c.recompute is not Recompute.NONE:
        result["activation_checkpointing"] = {"partition_activations": False}
    return result
