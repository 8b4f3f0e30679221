"""Ranks whose hosts are unsteady wait for the slowest one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.calibration import MACHINE, TRUTH, workload
from support.model import made
from wirecost.costmodel.host_jitter import slowest
from wirecost.costmodel.iteration import Iteration
from wirecost.costmodel.setup import setup
from wirecost.prediction.predict import predict
from wirecost.spec import Plan, Workload
from wirecost.spec.presets import named


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64, 1024])
def test_the_expected_largest_of_normal_draws(ranks: int) -> None:
    z = np.linspace(-8, 8, 40_001)
    below = np.cumsum(np.exp(-z * z / 2) / math.sqrt(2 * math.pi)) * (z[1] - z[0])
    largest = np.diff(below**ranks) @ z[1:]
    assert float(slowest(ranks)) == pytest.approx(largest, abs=2e-3)


def test_between_and_beyond_the_table() -> None:
    assert float(slowest(2)) < float(slowest(3)) < float(slowest(4))
    assert float(slowest(4096)) == float(slowest(1024))
    assert np.array_equal(slowest(np.array([1.0, 2.0])), [0.0, float(slowest(2))])


def sum_s(times: Iteration) -> float:
    parts = times.compute_s + times.host_s + times.bubble_s + times.exposed_comm_s
    return float(parts + times.optimizer_s + times.other_s + times.straggler_s)


@pytest.mark.parametrize(
    ("plan", "gpus", "where"),
    [
        ({}, 2, "gradient_s"),
        ({"tensor_parallel": 2}, 2, "tensor_s"),
        ({"tensor_parallel": 2}, 4, "gradient_s"),
        ({"pipeline_parallel": 2}, 2, "pipeline_s"),
    ],
)
def test_gpus_wait_for_the_slowest_host_in_what_they_do_together(
    plan: dict[str, Any], gpus: int, where: str
) -> None:
    start = made("gpt-2-medium", gpus=gpus, micro_batch=4, global_batch=16, **plan)
    steady, unsteady = (
        predict(replace(start, stack=start.stack.with_values({"host_issue_s": 1.0, "host_jitter": jitter})))
        for jitter in (0.0, 0.1)
    )
    rounds = 16 // 4 // (gpus // 2 if plan else gpus)
    share = 0.5 if "pipeline_parallel" in plan else 1.0
    more = float(unsteady.times.total_s - steady.times.total_s)
    assert more >= 0.1 * float(slowest(gpus)) * rounds * share * 1.0
    assert float(getattr(unsteady.times, where) - getattr(steady.times, where)) == pytest.approx(more)
    assert sum_s(unsteady.times) == pytest.approx(float(unsteady.times.total_s))
    fractions = [one.breakdown.comm_fraction() for one in (steady, unsteady)]
    assert fractions[0] is not None
    assert fractions[1] is not None
    assert fractions[0].median < fractions[1].median


def test_a_device_that_is_the_slower_one_waits_for_no_host() -> None:
    start = made("gpt-2-medium", gpus=2, micro_batch=4, global_batch=16)
    totals = [
        float(predict(replace(start, stack=start.stack.with_values(host))).times.total_s)
        for host in ({}, {"host_issue_s": 1e-6, "host_jitter": 0.1})
    ]
    assert totals[0] == totals[1]


@pytest.mark.parametrize(
    ("name", "hosts", "together", "where"),
    [
        ("all-reduce", 1, 1, "gradient_s"),
        ("all-reduce", 2, 2, "gradient_s"),
        ("all-reduce", 4, 2, "gradient_s"),
        ("tp2", 2, 2, "tensor_s"),
        ("cp2", 2, 2, "gradient_s"),
    ],
)
def test_where_hosts_compute_as_many_differ_as_there_are_cores(
    name: str, hosts: int, together: int, where: str
) -> None:
    """What the network takes is no host's pace."""
    plan = Plan.model_validate(named("plan", name))
    model = Workload.model_validate(workload(4, 256))
    steady, unsteady = (
        predict(setup(model, plan, MACHINE, stack=TRUTH.with_values({"host_jitter": jitter}), gpus=hosts)).times
        for jitter in (0.0, 0.1)
    )
    more = float(unsteady.total_s - steady.total_s)
    busy_s = float(steady.compute_s + steady.host_s)
    assert more == pytest.approx(0.1 * float(slowest(together)) * busy_s)
    assert float(getattr(unsteady, where) - getattr(steady, where)) == pytest.approx(more)
    assert sum_s(unsteady) == pytest.approx(float(unsteady.total_s))
