"""Counts the kinds of plans in the published tables to which each stack was fitted.

A number counts rows; `benchmarks/planner.py` prints them from the tables.
"""

from __future__ import annotations

from wirecost.planner.choices import Choice
from wirecost.spec import Recompute, Stack, Workload

ROWS: dict[str, dict[str, int]] = {
    "megatron-core": {
        "cp": 81, "ep": 84, "experts": 84, "pp": 189, "recompute none": 320, "recompute selective": 4,
        "sp": 157, "tp": 157, "vpp": 175, "zero1": 313, "zero3": 11,
    },
    "megatron-lm-2021": {
        "tp": 49, "pp": 38, "vpp": 4, "sp": 4, "zero0": 56, "recompute selective": 4, "recompute full": 52,
        "tp across nodes": 2,
    },
    "megatron-deepspeed": {
        "tp": 470, "pp": 409, "zero0": 781, "zero1": 9, "recompute full": 790, "tp across nodes": 2,
    },
    "nemo-2022": {"tp": 22, "pp": 8, "sp": 8, "zero0": 28, "recompute none": 20, "recompute selective": 8},
    "fsdp-flash": {"zero2": 4, "zero3": 110, "recompute none": 68, "recompute full": 46},
    "fsdp-compile": {
        "zero3": 8, "sharding inside nodes": 2, "recompute none": 2, "recompute selective": 2, "recompute full": 4,
    },
    "internevo": {
        "tp": 16, "sp": 2, "zero1": 53, "sharding inside nodes": 37, "recompute none": 42, "recompute full": 11,
    },
    "torchtitan": {"zero3": 4, "recompute none": 1, "recompute selective": 1, "recompute full": 2},
    "oneflow": {"tp": 11, "pp": 4, "zero0": 18, "recompute full": 18, "tp across nodes": 2},
    "xla": {"zero3": 13, "sharding inside nodes": 13, "recompute none": 13},
    "deepspeed-zero3-2021": {"zero3": 1, "recompute full": 1},
    "habana": {"tp": 5, "pp": 5, "sp": 5, "zero0": 5, "recompute none": 5},
    "pytorch-ddp": {"zero0": 20, "recompute none": 20},
    "tensorflow": {"zero0": 26, "recompute none": 26},
}  # fmt: skip
"""Rows with each kind of parallelism, by stack."""
NAMES = {
    "tp": "tensor parallelism",
    "pp": "pipelines",
    "vpp": "interleaving",
    "cp": "context parallelism",
    "ep": "expert parallelism",
    "sp": "sequence parallelism",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "experts": "experts",
}


def kinds_of(choice: Choice, workload: Workload, gpus_per_node: int) -> list[str]:
    """Returns the kinds of parallelism that a plan uses."""
    degrees = {key: getattr(choice, key) > 1 for key in ("tp", "pp", "vpp", "cp", "ep")}
    used = {
        **degrees,
        "sp": choice.sp,
        f"zero{choice.zero}": choice.zero > 0,
        "sharding inside nodes": choice.node_sharding,
        "tp across nodes": choice.tp > gpus_per_node,
        f"recompute {choice.recompute.value}": choice.recompute is not Recompute.NONE,
        "experts": workload.mixture_of_experts is not None,
        "order of ranks": choice.pp_first or choice.dp_last,
        f"schedule {choice.pipeline_schedule.value}": choice.schedule is not None,
    }
    return [kind for kind, present in used.items() if present]


def never_fitted(choice: Choice, workload: Workload, gpus_per_node: int, stack: Stack) -> list[str] | None:
    """Returns the kinds of parallelism of a plan of which the stack's tables have no row, for people. None if
    nothing is recorded of the stack, as of one of a user's own."""
    rows = ROWS.get(stack.name)
    if rows is None:
        return None
    return [NAMES.get(kind, kind) for kind in kinds_of(choice, workload, gpus_per_node) if not rows.get(kind)]
