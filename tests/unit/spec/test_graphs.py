"""When iterations may be replayed from CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest

from support.parity import WORKLOADS, experiment
from wirecost.spec import Experiment, Family, Plan, Workload
from wirecost.spec.experiment import Device
from wirecost.spec.graphs import may_replay, obstacle_to_graphs

MIXTURE = Workload.model_validate(
    {
        **WORKLOADS[Family.GPT].model_dump(),
        "mixture_of_experts": {"experts": 4, "top_k": 2, "expert_ffn_hidden": 32},
    }
)


def on_gpus(workload: Workload = WORKLOADS[Family.GPT], **plan: Any) -> Experiment:
    one = experiment(Plan.model_validate({"name": "plan", **plan}), workload, 2)
    return one.model_copy(update={"device": Device.CUDA})


@pytest.mark.parametrize("strategy", ["all_reduce", "zero1", "zero2", "zero3"])
def test_by_default_all_strategies_but_distributed_data_parallel_may_replay(strategy: str) -> None:
    assert may_replay(on_gpus(data_parallel=strategy))
    assert may_replay(on_gpus(data_parallel=strategy, tensor_parallel=2))
    assert not may_replay(on_gpus(data_parallel=strategy, graphs=False))


def test_distributed_data_parallel_is_replaced_only_if_the_plan_has_graphs() -> None:
    assert not may_replay(on_gpus(data_parallel="ddp"))
    assert may_replay(on_gpus(data_parallel="ddp", graphs=True))
    assert may_replay(on_gpus(data_parallel="ddp", tensor_parallel=2))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (on_gpus(pipeline_parallel=2), "pipeline_parallel 1, not 2"),
        (on_gpus(context_parallel=2), "context_parallel 1, not 2"),
        (on_gpus(MIXTURE), "as many tokens as the router sends"),
        (on_gpus(gradient_traffic="int8"), "gradient_traffic int8; use native, fp16, bf16"),
        (on_gpus().model_copy(update={"device": Device.CPU}), "need device cuda, not cpu"),
    ],
)
def test_what_changes_from_iteration_to_iteration_is_named(case: Experiment, reason: str) -> None:
    assert reason in (obstacle_to_graphs(case) or "")
    assert not may_replay(case)


def test_the_default_keeps_the_digest_of_earlier_results_and_graphs_change_it() -> None:
    digests = {on_gpus().digest, on_gpus(graphs=True).digest, on_gpus(graphs=False).digest}
    assert len(digests) == 3
    assert "graphs" not in str(sorted(on_gpus().plan.model_dump(exclude_none=True)))
