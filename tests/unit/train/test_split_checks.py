from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wirecost.spec import Plan, Workload
from wirecost.train.checks import check_combination, check_plan

GPT = Workload(name="w", layers=2, hidden=48, heads=6, ffn_hidden=100, vocab_size=101, sequence_length=20)


def refused(**plan: object) -> str | None:
    made = Plan.model_validate({"name": "p", **plan})
    return check_plan(made) or check_combination(GPT, made)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"tensor_parallel": 4}, "heads 6 does not divide over tensor_parallel 4; nearest that does: 4 or 8"),
        (
            {"tensor_parallel": 3},
            "ffn_hidden 100 does not divide over tensor_parallel 3; nearest that does: 99 or 102",
        ),
        ({"sequence_parallel": True}, "sequence_parallel needs tensor_parallel 2 or more, not 1"),
        ({"context_parallel": 4}, "sequence_length 20 does not divide over 8 chunks"),
        ({"context_parallel": 4}, "nearest that does: 16 or 24"),
        (
            {"context_parallel": 3, "tensor_parallel": 2, "sequence_parallel": True},
            "sequence_length 20 does not divide over 6 slices",
        ),
    ],
)
def test_what_does_not_divide_is_refused_with_the_nearest_that_does(plan: dict[str, object], why: str) -> None:
    assert why in (refused(**plan) or "")


def test_a_vocabulary_need_not_divide() -> None:
    assert refused(tensor_parallel=2) is None
    assert refused(tensor_parallel=2, sequence_parallel=True) is None
    assert refused(context_parallel=2) is None


def test_context_parallelism_is_for_causal_sequences() -> None:
    bert = GPT.model_copy(update={"family": "bert"})
    assert "use tensor_parallel" in (check_combination(bert, Plan(name="p", context_parallel=2)) or "")
