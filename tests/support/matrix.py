"""The combinations that the engine offers: model x strategy x precision x compilation.

A case has a setting for each factor. `experiment_of` turns it into an experiment, and `refusal` says whether the
engine refuses it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from support.pairwise import Case, Cover, cover_pairs
from wirecost.errors import WirecostError
from wirecost.spec import DataParallel, Experiment, Family, GradientTraffic, Plan, Precision, Recompute, Workload
from wirecost.spec.experiment import Device, LossScaling, Optimizer, Scaling
from wirecost.spec.network import Network
from wirecost.spec.presets import named
from wirecost.spec.yaml import validate
from wirecost.train.checks import check_combination, check_experiment, check_plan, check_workload

LLAMA: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rmsnorm",
    "positions": "rotary",
    "biases": False,
}
T5: dict[str, Any] = {
    "family": Family.T5,
    "activation": "relu",
    "norm": "rmsnorm",
    "positions": "relative",
    "biases": False,
}
# Learned routing would choose other experts where rounding differs.
MIXTURE = {"experts": 4, "top_k": 2, "expert_ffn_hidden": 32, "shared_experts": 1, "routing": "balanced"}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"layers": 4},
    "bert": {"layers": 4, "family": Family.BERT},
    "t5": {"layers": 2, "decoder_layers": 2, **T5},
    "llama": {"layers": 4, **LLAMA},
    "llama-untied-grouped": {"layers": 4, "kv_heads": 2, "tied_embeddings": False, **LLAMA},
    "mixture": {"layers": 4, **LLAMA, "mixture_of_experts": MIXTURE},
}
TINY = {"hidden": 32, "heads": 4, "vocab_size": 250, "sequence_length": 16}
"""Dimensions for two processor cores."""

SPLITS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"none": {}},
    2: {
        "none": {},
        "tensor": {"tensor_parallel": 2},
        "sequence": {"tensor_parallel": 2, "sequence_parallel": True},
        "context": {"context_parallel": 2},
        "1f1b": {"pipeline_parallel": 2},
        "gpipe": {"pipeline_parallel": 2, "pipeline_schedule": "gpipe"},
        "interleaved": {"pipeline_parallel": 2, "pipeline_schedule": "interleaved", "virtual_stages": 2},
        "expert": {"expert_parallel": 2},
    },
}
SPLITS[4] = {
    **SPLITS[2],
    "tensor+1f1b": {"tensor_parallel": 2, "pipeline_parallel": 2},
    "sequence+context": {"tensor_parallel": 2, "sequence_parallel": True, "context_parallel": 2},
    "sequence+expert": {"tensor_parallel": 2, "sequence_parallel": True, "expert_parallel": 2},
}
"""What divides a model, by the number of ranks. The other ranks are data-parallel."""

SWITCH = ["off", "on"]
CLIPPED_TO = 0.5
"""Smaller than the norm of the first gradients of these models, so that clipping changes them."""


def factors(ranks: int, device: Device = Device.CPU) -> dict[str, list[str]]:
    """Returns the values of every factor on a number of ranks."""
    several = ranks > 1
    return {
        "model": list(MODELS),
        "split": list(SPLITS[ranks]),
        "data_parallel": list(map(str, DataParallel)),
        "precision": list(map(str, Precision)),
        # Compiling takes longer than everything else. Every pair with it is covered, and little more.
        "compile": ["off"] * 30 + ["on"],
        "gradient_traffic": list(map(str, GradientTraffic)) if several else ["native"],
        "sharding_group": ["all", "node"] if several else ["all"],
        "overlap": SWITCH if several else ["on"],
        "recompute": list(map(str, Recompute)),
        "clipping": SWITCH,
        "rank_order": ["tp-cp-dp-pp", "pp-dp-cp-tp"] if ranks > 2 else ["tp-cp-dp-pp"],
        "graphs": SWITCH if device is Device.CUDA else ["off"],
    }


def workload_of(case: Mapping[str, str], dimensions: Mapping[str, int]) -> Workload:
    """Returns the workload of a case."""
    return Workload.model_validate({"name": case["model"], **dimensions, **MODELS[case["model"]]})


def experiment_of(
    case: Mapping[str, str],
    ranks: int,
    *,
    dimensions: Mapping[str, int] = TINY,
    device: Device = Device.CPU,
    iterations: int = 3,
) -> Experiment:
    """Returns the experiment of a case. Four ranks are on two hosts.

    Raises:
        WirecostError, ValueError: if it is impossible.
    """
    keys = ("data_parallel", "precision", "gradient_traffic", "sharding_group", "recompute", "rank_order")
    switches = ("compile", "overlap", "graphs")
    plan = Plan.model_validate(
        {
            "name": case["split"],
            "bucket_bytes": 20_000,
            **{key: case[key] for key in keys},
            **{key: case[key] == "on" for key in switches},
            **SPLITS[ranks][case["split"]],
        }
    )
    hosts = 2 if ranks > 2 else 1
    return Experiment(
        workload=workload_of(case, dimensions),
        plan=plan,
        network=_network(),
        scaling=Scaling.STRONG,
        hosts=hosts,
        ranks_per_host=ranks // hosts,
        global_batch=8,
        micro_batch=2,
        iterations=iterations,
        warmup=0,
        device=device,
        # Gradients that are zero but for rounding, as those of a key's bias, must not become whole steps.
        optimizer=Optimizer(
            epsilon=1e-5,
            gradient_clipping=CLIPPED_TO if case["clipping"] == "on" else None,
            loss_scaling=LossScaling(initial=2.0**10),  # too small for an overflow
        ),
    )


@functools.cache
def _network() -> Network:
    return validate(Network, named("network", "loopback"), "network")


def refusal(
    case: Mapping[str, str], ranks: int, dimensions: Mapping[str, int] = TINY, device: Device = Device.CPU
) -> str | None:
    """Returns the line with which the engine refuses a case before anything starts, or None if it trains it."""
    try:
        experiment = experiment_of(case, ranks, dimensions=dimensions, device=device)
    except (WirecostError, ValueError) as error:
        return str(error)
    workload, plan = experiment.workload, experiment.plan
    return (
        check_workload(workload)
        or check_plan(plan)
        or check_combination(workload, plan)
        or check_experiment(experiment)
    )


def matrix(ranks: int, dimensions: Mapping[str, int] = TINY, device: Device = Device.CPU) -> Cover:
    """Returns cases that contain every possible pair of settings on a number of ranks."""
    return cover_pairs(factors(ranks, device), lambda case: refusal(case, ranks, dimensions, device))


REFERENCE_KEYS = ("model", "precision", "clipping")
"""The factors that change what is computed. All others change only how."""


def reference_of(case: Mapping[str, str]) -> Case:
    """Returns the case of one process that computes the same as a case."""
    alone = {name: values[0] for name, values in factors(1).items()}
    return alone | {key: case[key] for key in REFERENCE_KEYS}


EPSILONS = {
    "fp32": torch.finfo(torch.float32).eps,
    "bf16": torch.finfo(torch.bfloat16).eps,
    "fp16": torch.finfo(torch.float16).eps,
}


def loss_tolerance(case: Mapping[str, str]) -> float:
    """Returns the largest relative difference of a loss from that of one process.

    A loss is a mean over at least 128 targets. The logits of each are wrong by half an epsilon either way in either
    run, and independently. Compressed gradients change the steps; PowerSGD drops all but low ranks of them.
    """
    lossy = {"powersgd": 0.05, "int8": 0.01, "bf16": 0.01, "fp16": 0.01}
    rounding = 1e-5 if case["precision"] == "fp32" else EPSILONS[case["precision"]] / 8
    return max(lossy.get(case["gradient_traffic"], 0.0), rounding)
