"""Pipelines that can't run are refused before anything starts, with what would."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from support.parity import MICRO_BATCH, WORKLOADS, experiment
from wirecost.spec import Family, Plan
from wirecost.train.checks import check_combination, check_experiment, check_plan
from wirecost.train.models import build_model
from wirecost.train.parallel.stages import stage_of_units

INTERLEAVED = {"pipeline_parallel": 2, "pipeline_schedule": "interleaved", "virtual_stages": 2}


def plan(**settings: Any) -> Plan:
    return Plan.model_validate({"name": "p", **settings})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pipeline_parallel": 2, "pipeline_schedule": "interleaved"}, "virtual_stages of at least 2"),
        ({"pipeline_parallel": 2, "virtual_stages": 2}, "needs pipeline_schedule interleaved"),
        ({"virtual_stages": 2, "pipeline_schedule": "interleaved"}, "pipeline_parallel of at least 2"),
        ({"pipeline_parallel": 2, "data_parallel": "zero3"}, "use zero1 or zero2"),
    ],
)
def test_plans(settings: dict[str, Any], says: str) -> None:
    assert says in (check_plan(plan(**settings)) or "")


def test_layers_that_do_not_divide() -> None:
    workload = WORKLOADS[Family.GPT]
    assert "4 layers of workload 'gpt' do not divide over 3 pipeline stages; nearest that do: 3 or 6" in (
        check_combination(workload, plan(pipeline_parallel=3)) or ""
    )
    assert check_combination(workload, plan(**INTERLEAVED)) is None
    assert check_combination(WORKLOADS[Family.T5], plan(pipeline_parallel=4)) is None


def test_micro_batches_of_interleaved() -> None:
    workload = WORKLOADS[Family.GPT]
    reason = check_experiment(experiment(plan(**INTERLEAVED), workload, 2, global_batch=9 * MICRO_BATCH))
    assert "gives 9; nearest that do: 8 or 10" in (reason or "")
    assert check_experiment(experiment(plan(**INTERLEAVED), workload, 2)) is None
    assert (
        check_experiment(experiment(plan(pipeline_parallel=2), workload, 2, global_batch=9 * MICRO_BATCH)) is None
    )


def test_layers_are_shared_out_evenly_and_the_rest_goes_to_the_ends() -> None:
    assert stage_of_units(build_model(WORKLOADS[Family.GPT]), 2) == [0, 0, 0, 1, 1, 1]
    # The decoder's embedding starts the decoder's stage.
    assert stage_of_units(build_model(WORKLOADS[Family.T5]), 2) == [0, 0, 0, 1, 1, 1, 1]
    assert stage_of_units(build_model(WORKLOADS[Family.T5]), 4) == [0, 0, 1, 2, 2, 3, 3]
