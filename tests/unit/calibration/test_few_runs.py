"""One to three runs are explained by the properties that can, and predict others better than the preset does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from wirecost.breakdown import Source
from wirecost.calibration.inputs.row_machine import link_named
from wirecost.calibration.inputs.runs import Observed
from wirecost.calibration.properties import Free, Parts, Values, start_of
from wirecost.calibration.run_rows import Runs
from wirecost.calibration.runs import DeviceFit, fit_runs
from wirecost.calibration.solver import solve
from wirecost.costmodel.setup import setup
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import GPU, Precision, Stack, gpu, load_spec, stack_named

NAME = "H200-SXM-141GB"
LINK = link_named("shared-memory")
PARTS = Parts(gpu(NAME), stack_named("engine-cuda"), LINK, LINK)
ENGINE, TRACE = ("forward", "backward", "optimizer", "other"), ("device", "window")
RUNS = (("gpt-350m", 4), ("bert-large", 16), ("gpt-1.3b", 2), ("gpt-2-medium", 1), ("t5-large", 4))
UNSEEN = (("gpt-2-xl", 2, "zero3-bf16", 4), ("bert-base", 32, "zero1-bf16", 4), ("gpt-2", 1, "ddp-bf16", 8))
SLOW = {"matrix_efficiency": 0.6, "host_forward_s": 2.0, "host_backward_s": 2.0}
KERNELS = {"hidden_bytes": 2.5, "optimizer_bytes": 2.0, "attention_efficiency": 0.5}
UNIFORM = {
    "matrix_efficiency": 1 / 1.6, "attention_efficiency": 1 / 1.6, "hidden_bytes": 1.6, "sharded_bytes": 1.6,
    "vocabulary_bytes": 1.6, "optimizer_bytes": 1.6,
}  # fmt: skip
NOISE = 0.005


def truth(factors: Mapping[str, float]) -> Values:
    values = {}
    for key, factor in factors.items():
        kind, owner = ("gpu", PARTS.gpu) if key == "matrix_efficiency" else ("stack", PARTS.stack)
        values[f"{kind} {owner.name} {key}"] = start_of(owner, key) * factor
    return values


def runs_of(count: int, values: Values, names: Sequence[str], first: int = 0) -> list[Observed]:
    rng = np.random.default_rng(first)
    runs = []
    for workload, micro_batch in (RUNS[first:] + RUNS[:first])[:count]:
        run = Observed(
            name=workload, source=Source.MEASURED, workload=load_spec("workload", workload),
            plan=load_spec("plan", "all-reduce-bf16"), micro_batch=micro_batch, global_batch=micro_batch,
            ranks=1, ranks_per_host=1, parts=dict.fromkeys(names, 1.0), iteration_s=1.0,
        )  # fmt: skip
        times = Runs([run], PARTS, Precision.BF16).predict(values)
        noisy = {name: float(times[name][0] * np.exp(NOISE * rng.standard_normal())) for name in names}
        runs.append(replace(run, parts=noisy))
    return runs


def predictions(device: GPU, stack: Stack) -> list[Prediction]:
    cluster = load_spec("cluster", "dgx-h200").model_copy(update={"gpu": device})
    return [
        predict(
            setup(
                load_spec("workload", workload), load_spec("plan", plan), cluster, stack=stack, gpus=gpus,
                micro_batch=micro_batch,
            )
        )
        for workload, micro_batch, plan, gpus in UNSEEN
    ]  # fmt: skip


def logs(device: GPU, stack: Stack, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Returns log(predicted / true) of the unseen runs, and half the widths of their intervals."""
    true = PARTS.with_values(values)
    found = list(zip(predictions(device, stack), predictions(true.gpu, true.stack), strict=True))
    widths = [math.log(p.breakdown.interval.high_ns * 1e-9 / p.total_s) for p, _ in found if p.breakdown.interval]
    return np.array([math.log(p.total_s / t.total_s) for p, t in found]), np.array(widths)


def fitted(count: int, values: Values, names: Sequence[str], first: int = 0) -> DeviceFit:
    return fit_runs(runs_of(count, values, names, first), gpu_name=NAME)


@pytest.mark.parametrize("factors", [SLOW, KERNELS, UNIFORM], ids=["slow", "kernels", "uniform"])
@pytest.mark.parametrize("names", [ENGINE, TRACE], ids=["engine", "trace"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_runs_are_explained_and_predict_others(
    count: int, names: Sequence[str], factors: Mapping[str, float]
) -> None:
    values = truth(factors)
    before, _ = logs(PARTS.gpu, PARTS.stack, values)
    covered = []
    for first in range(2 if count < 3 else 1):
        made = fitted(count, values, names, first)
        assert np.abs(made.fit.row_errors).max() < 0.04
        after, widths = logs(made.gpu, made.stack, values)
        assert np.abs(after).mean() < np.abs(before).mean()
        covered += (np.abs(after) <= widths).tolist()
    assert np.mean(covered) >= 0.8


def test_runs_that_the_preset_explains_change_no_prediction_by_much() -> None:
    made = fitted(2, {}, ENGINE)
    after, _ = logs(made.gpu, made.stack, {})
    assert np.abs(after).max() < 0.03


def test_what_no_value_explains_is_not_taken_for_noise_of_the_rest() -> None:
    # Half the time of any value within the bounds: the properties go as far as they are believed to.
    runs = [replace(run, parts={k: v / 2 for k, v in run.parts.items()}) for run in runs_of(2, {}, TRACE)]
    made = fit_runs(runs, gpu_name=NAME)
    errors = np.array(made.fit.row_errors)
    assert (errors < 0.75).all()
    assert any(p.fitted for p in made.fit.properties)


def test_properties_that_only_go_together_share_what_they_explain() -> None:
    first, second = solve(
        [Free("first", 1.0, 0.5), Free("second", 1.0, 0.5)],
        lambda v: np.array([np.log(v["first"] * v["second"] / 2.0) / 0.02]),
        reset=False,
    )
    assert first.value == pytest.approx(second.value, rel=1e-3)
    assert first.value * second.value == pytest.approx(2.0, rel=0.01)
    assert (first.fitted, first.determined) == (True, False)
    assert first.reason == "the measurements determine it only together with others"


def test_more_measurements_leave_a_narrower_interval() -> None:
    withins = []
    for count in (1, 4, 16):
        (level,) = solve([Free("level", 1.0, 1.0)], lambda v, n=count: np.full(n, np.log(v["level"] / 3) / 0.05))
        assert level.within is not None
        withins.append(level.within)
    assert all(wider > narrower for wider, narrower in pairwise(withins))


def test_one_measurement_says_nothing_of_its_own_noise() -> None:
    # Its residual is zero, and the stated noise counts.
    (level,) = solve([Free("level", 1.0, 10.0)], lambda v: np.array([np.log(v["level"] / 3) / 0.1]))
    assert level.within == pytest.approx(math.expm1(1.645 * 0.1), rel=0.05)


def test_what_is_switched_off_stays_off_unless_runs_need_it() -> None:
    x = np.array([1.0, 2.0, 4.0])

    def errors(needed: float) -> list[bool]:
        start = [Free("slope", 2.0, 0.5), Free("base", 0.0, 1.0, begin=1.0)]
        found = solve(start, lambda v: np.log((v["base"] + v["slope"] * x) / (needed + 2 * x)) / 0.05, reset=False)
        return [p.fitted for p in found]

    assert errors(0.0) == [True, False]
    assert errors(5.0) == [True, True]


def test_runs_of_an_encoder_and_decoder_fit_beside_a_decoders() -> None:
    runs = runs_of(2, {}, ENGINE, first=3)
    assert {run.workload.name for run in runs} == {"gpt-2-medium", "t5-large"}
    assert np.isfinite(Runs(runs, PARTS, Precision.BF16).errors({})).all()
