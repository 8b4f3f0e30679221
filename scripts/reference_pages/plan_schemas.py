"""JSON schemas of what `wirecost plan` prints."""

from __future__ import annotations

from typing import Any

from reference_pages.schema_parts import keys, list_of, or_null, record, typed
from wirecost.planner.constraints import WORDS
from wirecost.planner.parts import PARTS
from wirecost.planner.schedules import SCHEDULES
from wirecost.spec import RankOrder, Recompute


def plans() -> dict[str, Any]:
    """Returns the schema of `wirecost plan --format json`."""
    short = keys(label="string", iteration_s="number")
    sizes = {name: typed("number", meaning) for name, meaning in _SIZES.items()}
    rule = keys(
        rule="string", obeyed="boolean?", disobeying_costs="number?", obeying="string?", disobeying="string?"
    )
    case = keys(case="string", best="string", iteration_s="number") | {"regrets": list_of(typed("number"))}
    uncertain = record(short | {"stack": typed("string")} | sizes)
    return record(
        {
            "schema_version": {"const": 1},
            **keys(workload="string", cluster="string", gpus="integer", global_batch="integer"),
            "sequence_length": typed("integer"),
            "stacks": list_of(typed("string")),
            "schedules": list_of({"enum": [schedule.value for schedule in SCHEDULES]}),
            "constraints": list_of(typed("string")),
            "headroom": typed("number", "Share of the GPU's memory that plans leave free."),
            "assumed": {
                "type": "object",
                "additionalProperties": typed("string"),
                "description": "Values of options that were not given.",
            },
            "legal": typed("integer", "Number of legal plans."),
            "fitting": typed("integer", "Number of plans that are ranked: they fit and meet the constraints."),
            "fitting_for_certain": typed(
                "boolean", "Whether all ranked plans fit at the upper end of their memory."
            ),
            "may_not_fit": typed("integer", "Number of plans that fit at the lower end of their memory alone."),
            "faster_that_may_not_fit": list_of(uncertain),
            "alike": typed("integer", "Number of plans that can't be told apart from the fastest."),
            "gpu_memory_bytes": typed("number"),
            "plans": list_of(_plan()),
            "measure": list_of(typed("string", "A plan of the first group that is worth measuring.")),
            "pareto": list_of(record(short | keys(memory_bytes="number"))),
            "rules": list_of(record(rule)),
            "robustness": list_of(record(case)),
            "smallest": or_null(record(keys(label="string", least_memory_bytes="number"))),
            "meets_limits": typed("boolean?", "Whether the fastest plan meets deadline and budget."),
            "changes": list_of(record(short | keys(change="string", memory_bytes="number"))),
            "explanation": _explanation(),
        },
        optional=("explanation",),
        title="wirecost plan --format json",
    )


_SIZES = {
    "least_memory_bytes": "Lower end of the memory of the fullest rank.",
    "memory_bytes": "Upper end of the memory of the fullest rank.",
}


def _plan() -> dict[str, Any]:
    """Returns the schema of a listed plan."""
    degrees = keys(tp="integer", pp="integer", vpp="integer", cp="integer", ep="integer", dp="integer")
    numbers = keys(
        iteration_s="number", low_s="number?", high_s="number?", tokens_per_s="number?", mfu="number?",
        comm_fraction="number",
    )  # fmt: skip
    return record(
        {
            **keys(plan="integer", group="integer", label="string", stack="string"),
            **degrees,
            "micro_batch": typed("integer"),
            "zero": {"enum": [0, 1, 2, 3]},
            "sharding_group": {"enum": list(WORDS["sharding_group"])},
            **keys(overlap="boolean", sequence_parallel="boolean"),
            "recompute": {"enum": [each.value for each in Recompute]},
            "rank_order": {"enum": [each.value for each in RankOrder]},
            "schedule": {"enum": [*(each.value for each in SCHEDULES), None]},
            "accumulation": typed("integer"),
            **numbers,
            **{name: typed("number", meaning) for name, meaning in _SIZES.items()},
            "fit": {"enum": ["fits", "may not fit"]},
            "regret_20_percent": typed(
                "number", "How much slower it is than the fastest with bandwidth or compute 20 % lower or higher."
            ),
            **keys(dollars_per_billion_tokens="number?", run_s="number?", run_dollars="number?"),
            "never_fitted": {
                "type": ["array", "null"],
                "items": typed("string"),
                "description": "Kinds of parallelism that its stack was never fitted to. Null is unknown.",
            },
            "parts_s": {
                "type": "object",
                "propertyNames": {"enum": list(PARTS.values())},
                "additionalProperties": typed("number"),
                "description": "Parts of the iteration, which sum to it.",
            },
            "memory_parts_bytes": {
                "type": "object",
                "additionalProperties": typed("number"),
                "description": "Parts of the upper end of the memory, which sum to it.",
            },
        }
    )


def _explanation() -> dict[str, Any]:
    """Returns the schema of `--explain A B`."""
    choice = keys(choice="string", first="string", second="string")
    part = keys(part="string", first_s="number", second_s="number", cause="string")
    size = keys(part="string", first_bytes="number", second_bytes="number")
    numbers = keys(first_s="number", second_s="number", ratio="number", ratio_low="number", ratio_high="number")
    return record(
        keys(first="string", second="string")
        | numbers
        | {
            "choices": list_of(record(choice)),
            "parts_s": list_of(record(part)),
            "memory_bytes": list_of(record(size)),
        }
    )


def measured_plans() -> dict[str, Any]:
    """Returns the schema of `wirecost plan --measure K --format json`."""
    plan = keys(
        plan="integer", label="string", predicted_s="number", measured_s="number?", error="number?",
        status="string", reason="string?",
    )  # fmt: skip
    return record(
        {
            "schema_version": {"const": 1},
            "plans": list_of(record(plan)),
            **keys(best="string?", not_run="integer", out="string", table="string?"),
            "notes": list_of(typed("string")),
        },
        title="wirecost plan --measure K --format json",
    )
