"""16 bits with tensor, sequence, context and pipeline parallelism: as one process in 16 bits does, and exact bytes.

In BF16 every unit goes through torch.compile as well. Its own C++ would take most of a minute a plan, so a backend
runs the graphs as PyTorch does: what may go wrong with the plan, tracing around the collectives, is the same.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from support.parity import MICRO_BATCH, WORKLOADS, Overflow, Trained, experiment, train_all
from support.traffic import partial_gradients, tensor_parallel
from wirecost.spec import Family, LossScaling, Plan, Precision
from wirecost.spec.experiment import Optimizer

GPT = WORKLOADS[Family.GPT]
SETTINGS = Optimizer(epsilon=1e-5, loss_scaling=LossScaling(initial=2.0**10))
"""The scale is too small for an overflow of its own."""
SPLITS = {
    "tensor": {"tensor_parallel": 2},
    "sequence": {"tensor_parallel": 2, "sequence_parallel": True},
    "context": {"context_parallel": 2},
    "1f1b": {"pipeline_parallel": 2},
    "interleaved": {"pipeline_parallel": 2, "pipeline_schedule": "interleaved", "virtual_stages": 2},
}
DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
ITERATIONS = 3
OVERFLOWS = {Precision.FP16: 1}
"""The iteration in which a gradient is infinite on one rank."""
Call = tuple[str, str, int, int]


def test_split_models_train_in_16_bits_as_one_process_does_with_exact_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    def overflows(rank: int, precision: Precision) -> Overflow | None:
        return Overflow(rank, OVERFLOWS[precision]) if precision in OVERFLOWS else None

    changes = {"optimizer": SETTINGS, "iterations": ITERATIONS}
    alone = train_all(
        [experiment(Plan(name="alone", precision=p), GPT, 1, **changes) for p in Precision],
        tmp_path / "one",
        overflows=[overflows(0, p) for p in Precision],
    )
    expected = dict(zip(Precision, alone, strict=True))
    plans = [
        Plan.model_validate(
            {"name": name, "precision": precision, "compile": precision is Precision.BF16, **split}
        )
        for precision, (name, split) in product(DTYPES, SPLITS.items())
    ]
    trained = train_all(
        [experiment(plan, GPT, 2, **changes) for plan in plans],
        tmp_path / "two",
        overflows=[overflows(1, plan.precision) for plan in plans],
        compiler="eager",
    )
    parameters = sum(p.numel() for p in alone[0].parameters.values())
    assert len(plans) == len(DTYPES) * len(SPLITS) > 0
    for plan, found in zip(plans, trained, strict=True):
        try:
            assert_as_close_as_rounding(found, plan.precision, expected)
            assert_scaled_alike(found, plan.precision)
            for calls in zip(*found.calls, strict=True):
                assert sum(map(Counter, calls), Counter()) == every_call(plan, parameters)
        except AssertionError as wrong:
            raise AssertionError(f"{plan.name} in {plan.precision}") from wrong


def assert_as_close_as_rounding(found: Trained, precision: Precision, alone: dict[Precision, Trained]) -> None:
    """Another order of sums rounds otherwise. Each logit is wrong by up to half an epsilon of the format either
    way, and the loss is the mean over 256 of them, independent of one another: epsilon / 16. A parameter may be
    rounded to the neighbour of the right number (those of norms are about 1: one epsilon) and, where a gradient
    is nearly zero, miss one whole step of Adam. All together, parameters differ by less than 16 bits make them
    differ from FP32."""
    epsilon = torch.finfo(DTYPES[precision]).eps
    expected = alone[precision]
    assert found.losses == pytest.approx(expected.losses, rel=epsilon / 16)
    assert found.losses[-1] < found.losses[0]
    differences = {n: v.float() - expected.parameters[n].float() for n, v in found.parameters.items()}
    assert differences.keys() == expected.parameters.keys()
    for name, difference in differences.items():
        assert difference.abs().max() <= epsilon + SETTINGS.learning_rate, name
    if precision not in OVERFLOWS:
        whole = alone[Precision.FP32].parameters
        rounding = [expected.parameters[n].float() - v for n, v in whole.items()]
        assert norm(list(differences.values())) < norm(rounding)


def norm(tensors: list[torch.Tensor]) -> float:
    return float(torch.stack([t.norm() for t in tensors]).norm())


def assert_scaled_alike(found: Trained, precision: Precision) -> None:
    """The one overflow on one rank skips the step and halves the scale on both."""
    initial = SETTINGS.loss_scaling.initial
    if precision not in OVERFLOWS:
        assert found.scales == [[], []]
        assert found.steps == [[ITERATIONS]] * 2
    else:
        good = OVERFLOWS[precision]
        assert found.scales == [[initial] * good + [initial / 2] * (ITERATIONS - good)] * 2
        assert found.steps == [[ITERATIONS - 1]] * 2


def every_call(plan: Plan, parameters: int) -> Counter[Call]:
    """Both ranks' collectives in an iteration, with two bytes an element but for the cross-entropy's sums."""
    micro_batches = 8 // MICRO_BATCH
    made: Counter[Call] = Counter()
    if plan.tensor_parallel > 1 or plan.context_parallel > 1:
        calls = tensor_parallel(GPT, plan, micro_batch=MICRO_BATCH, micro_batches=micro_batches, element=2)
        made += Counter({call: 2 * count for call, count in calls.items()})
    if plan.sequence_parallel:
        made["all_reduce", "tensor_parallel", 2, 2 * partial_gradients(GPT)] += 2
    if plan.context_parallel > 1:
        made["all_reduce", "data_parallel", 2, 2 * parameters] += 2
    if plan.pipeline_parallel > 1:
        boundaries = 2 * plan.virtual_stages - 1
        state = 2 * MICRO_BATCH * GPT.sequence_length * GPT.hidden
        for op in ("send", "recv"):
            made[op, "pipeline_parallel", 2, state] += 2 * boundaries * micro_batches
        made["all_reduce", "embedding", 2, 2 * GPT.vocab_size * GPT.hidden] += 2
    if plan.precision is Precision.FP16:
        for group, size in (
            ("tensor_parallel", plan.tensor_parallel),
            ("pipeline_parallel", plan.pipeline_parallel),
        ):
            if size > 1:
                made["all_reduce", group, 2, 4] += 2  # the norm, which tells of an overflow
    return made
