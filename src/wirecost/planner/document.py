"""The answer of a search as plain data, for JSON, CSV and pages."""

from __future__ import annotations

import math
from typing import Any

from wirecost.planner.answer import Answer, Ranked
from wirecost.planner.choices import Choice
from wirecost.planner.explain import Explanation
from wirecost.planner.nearest import Change
from wirecost.planner.rules import Rule
from wirecost.prediction.predict import iteration_parts, memory_parts

SCHEMA_VERSION = 1
"""Version of the JSON document (docs/reference/schemas/plans.json)."""


def plan_row(answer: Answer, number: int, ranked: Ranked) -> dict[str, Any]:
    """Returns the row of a listed plan. Times are in seconds, sizes in bytes."""
    prediction, choice = ranked.prediction, ranked.choice
    interval = prediction.breakdown.interval
    return {
        "plan": number,
        "group": ranked.group,
        "label": choice.label,
        "stack": ranked.stack.name,
        **choice_row(choice),
        "accumulation": prediction.setup.accumulation,
        "iteration_s": prediction.total_s,
        "low_s": interval.low_ns / 1e9 if interval else None,
        "high_s": interval.high_ns / 1e9 if interval else None,
        "tokens_per_s": prediction.tokens_per_s,
        "mfu": prediction.mfu,
        "comm_fraction": prediction.comm_fraction,
        "least_memory_bytes": float(prediction.memory.least),
        "memory_bytes": float(prediction.memory.total),
        "fit": answer.fit(prediction),
        "regret_20_percent": ranked.regret,
        "dollars_per_billion_tokens": dollars_per_billion_tokens(answer, prediction.total_s),
        "run_s": ranked.run_s,
        "run_dollars": ranked.run_dollars,
        "never_fitted": ranked.unfitted,
    }


def choice_row(choice: Choice) -> dict[str, Any]:
    """Returns the choices of a plan as plain data."""
    return {
        "tp": choice.tp,
        "pp": choice.pp,
        "vpp": choice.vpp,
        "cp": choice.cp,
        "ep": choice.ep,
        "dp": choice.dp,
        "micro_batch": choice.mb,
        "zero": choice.zero,
        "sharding_group": "node" if choice.node_sharding else "all",
        "overlap": choice.overlap,
        "sequence_parallel": choice.sp,
        "recompute": choice.recompute.value,
        "rank_order": choice.rank_order.value,
        "schedule": choice.pipeline_schedule.value if choice.pp > 1 else None,
    }


def dollars_per_billion_tokens(answer: Answer, total_s: float) -> float | None:
    """Returns the price of a billion tokens; None without the price of a GPU."""
    price = answer.limits.price
    return None if not price else price * answer.question.gpus / 3600 * total_s / answer.tokens * 1e9


def document(answer: Answer, assumed: dict[str, str]) -> dict[str, Any]:
    """Returns the whole answer as plain data for JSON."""
    question, found = answer.question, answer.found
    smallest = found.smallest
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": question.workload.name,
        "cluster": question.cluster.name,
        "gpus": question.gpus,
        "global_batch": question.global_batch,
        "sequence_length": question.workload.sequence_length,
        "stacks": [stack.name for stack in question.stacks],
        "schedules": [schedule.value for schedule in question.schedules],
        "constraints": [each.text for each in question.constraints],
        "headroom": question.headroom,
        "assumed": assumed,
        "legal": found.legal,
        "fitting": len(found),
        "alike": answer.alike,
        "gpu_memory_bytes": float(question.cluster.accelerator.memory_bytes),
        "plans": [
            {
                **plan_row(answer, number, ranked),
                "parts_s": dict(iteration_parts(ranked.prediction)),
                "memory_parts_bytes": dict(memory_parts(ranked.prediction)),
            }
            for number, ranked in enumerate(answer.ranked, 1)
        ],
        "measure": [found.choice(place).label for place in answer.to_measure],
        "pareto": [
            {
                "label": found.choice(place).label,
                "iteration_s": float(found.total_s[place]),
                "memory_bytes": float(found.memory_bytes[place]),
            }
            for place in answer.pareto
        ],
        "rules": [rule_row(rule) for rule in answer.rules],
        "robustness": [
            {
                "case": case.name,
                "best": case.best.label,
                "iteration_s": case.total_s,
                "regrets": list(case.regrets),
            }
            for case in answer.cases
        ],
        "fitting_for_certain": found.is_certain,
        "may_not_fit": found.uncertain_count,
        "faster_that_may_not_fit": [
            {
                "label": each.choice.label,
                "stack": question.stacks[each.stack].name,
                "iteration_s": each.total_s,
                "least_memory_bytes": each.least_bytes,
                "memory_bytes": each.memory_bytes,
            }
            for each in found.uncertain
        ],
        "smallest": None if smallest is None else {"label": smallest[0].label, "least_memory_bytes": smallest[1]},
        "meets_limits": answer.meets,
        "changes": [change_row(change) for change in answer.changes],
    }


def rule_row(rule: Rule) -> dict[str, Any]:
    """Returns a rule of thumb as plain data."""
    return {
        "rule": rule.name,
        "obeyed": rule.obeyed,
        "disobeying_costs": rule.cost,
        "obeying": None if rule.obeying is None else rule.obeying[0].label,
        "disobeying": None if rule.disobeying is None else rule.disobeying[0].label,
    }


def change_row(change: Change) -> dict[str, Any]:
    """Returns a change of the question as plain data."""
    return {
        "change": change.what,
        "iteration_s": change.total_s,
        "label": change.label,
        "memory_bytes": change.memory_bytes,
    }


def explanation_row(explanation: Explanation) -> dict[str, Any]:
    """Returns where two plans differ as plain data."""
    before = sum(part.first for part in explanation.times)
    after = sum(part.second for part in explanation.times)
    ratio = after / before
    return {
        "first": explanation.first.label,
        "second": explanation.second.label,
        "first_s": before,
        "second_s": after,
        "ratio": ratio,
        "ratio_low": ratio * math.exp(-explanation.half_width),
        "ratio_high": ratio * math.exp(explanation.half_width),
        "choices": [{"choice": n, "first": a, "second": b} for n, a, b in explanation.choices],
        "parts_s": [
            {"part": p.name, "first_s": p.first, "second_s": p.second, "cause": p.cause} for p in explanation.times
        ],
        "memory_bytes": [
            {"part": p.name, "first_bytes": p.first, "second_bytes": p.second} for p in explanation.memory
        ],
    }
