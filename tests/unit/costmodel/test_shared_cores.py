"""Ranks that share a machine's cores take turns."""

from __future__ import annotations

import numpy as np
import pytest

from support.calibration import MACHINE, TRUTH, workload
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shared_cores import bubble_s, sharing
from wirecost.spec import Plan, SharedCores, Workload
from wirecost.spec.presets import named


def test_ranks_that_share_cores() -> None:
    cores = SharedCores(count=4, threads=4, serial=0.5, shared_by="all", source="test")
    cluster = MACHINE.model_copy(update={"shared_cores": cores, "nodes": 8})
    plan = Plan.model_validate(named("plan", "all-reduce"))
    model = Workload.model_validate(workload(4, 256))
    factors = []
    for ranks in (1, 2, 4, 8):
        made = setup(model, plan, cluster, stack=TRUTH, gpus=ranks)
        found = sharing(layout_of(made), cores, gpus_per_node=1.0)
        factors.append((float(found.slowdown), float(found.turns)))
    # One thread's time is 1; on four it is 0.5 + 0.5 / 4.
    expected = [(1, 1), (0.75 / 0.625, 1), (1 / 0.625, 1), (2 / 0.625, 2)]
    assert np.array(factors) == pytest.approx(np.array(expected))
    # A pipeline whose stages take turns is as long as all the work, not longer by the bubble.
    assert bubble_s(8.0, 2.0, 2.0) == 0.0
    assert bubble_s(8.0, 2.0, 1.0) == 2.0
