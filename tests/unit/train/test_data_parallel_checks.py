"""Data-parallel plans that can't work are refused, with what would."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wirecost.errors import SpecError
from wirecost.spec import DataParallel, GradientTraffic, Plan, Study, validate
from wirecost.train.checks import check_plan
from wirecost.train.grid import rank_grid


@pytest.mark.parametrize("data_parallel", [DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3])
@pytest.mark.parametrize("traffic", [GradientTraffic.INT8, GradientTraffic.POWERSGD])
def test_reduce_scattered_gradients_are_not_compressed_to_what_cannot_be_summed(
    data_parallel: DataParallel, traffic: GradientTraffic
) -> None:
    reason = check_plan(Plan(name="p", data_parallel=data_parallel, gradient_traffic=traffic))
    assert reason is not None
    assert f"{data_parallel} reduce-scatters gradients" in reason
    assert "use data_parallel all_reduce or ddp" in reason


def test_sharding_within_a_node_needs_something_to_shard() -> None:
    reason = check_plan(Plan(name="p", data_parallel=DataParallel.DDP, sharding_group="node"))
    assert reason is not None
    assert "sharding_group node needs something to shard: data_parallel zero1, zero2, zero3, not ddp" in reason


def test_hosts_that_cut_a_sharding_group_apart_are_refused_before_anything_starts() -> None:
    # Three ranks on a host and pipelines of two neighbours: one pipeline would span two hosts.
    study = validate(
        Study,
        {
            "name": "s",
            "workloads": [{"name": "w", "layers": 1, "hidden": 8, "heads": 2, "vocab_size": 300, "sequence_length": 8}],
            "networks": ["emulated-1g"],
            "plans": [
                {"name": "p", "data_parallel": "zero1", "sharding_group": "node", "pipeline_parallel": 2,
                 "rank_order": "pp-dp-cp-tp"}
            ],
            "hosts": [2],
            "ranks_per_host": 3,
            "scaling": [{"kind": "strong", "global_batch": 6}],
        },
        "study",
    )  # fmt: skip
    with pytest.raises(SpecError, match="hosts with a whole number of data-parallel ranks; 3 ranks on a host"):
        rank_grid(next(iter(study.model_experiments())))


def test_the_rank_order_says_which_ranks_are_neighbours() -> None:
    def ranks(order: str) -> list[tuple[int, ...]]:
        """Returns the tensor, pipeline and data-parallel groups of rank 0."""
        plan = {
            "name": "p",
            "tensor_parallel": 2,
            "pipeline_parallel": 2,
            "data_parallel": "zero1",
            "rank_order": order,
        }
        workload = {"name": "w", "layers": 2, "hidden": 8, "heads": 2, "vocab_size": 300, "sequence_length": 8}
        study = validate(
            Study,
            {
                "name": "s", "workloads": [workload], "networks": ["emulated-1g"], "plans": [plan], "hosts": [2],
                "ranks_per_host": 4, "scaling": [{"kind": "strong", "global_batch": 4}],
            },
            "study",
        )  # fmt: skip
        grid = rank_grid(next(iter(study.model_experiments())))
        return [
            tuple(map(int, axis)) for axis in (grid[0, 0, 0, 0, 0], grid[:, 0, 0, 0, 0, 0], grid[0, 0, :, 0, 0, 0])
        ]

    assert ranks("tp-cp-dp-pp") == [(0, 1), (0, 4), (0, 2)]
    assert ranks("pp-dp-cp-tp") == [(0, 4), (0, 1), (0, 2)]
    assert ranks("tp-cp-pp-dp") == [(0, 1), (0, 2), (0, 4)]
