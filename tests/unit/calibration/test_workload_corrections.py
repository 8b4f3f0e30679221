"""What a fit leaves over of a workload is made up for in predictions of that workload."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.calibration import ENVIRONMENT, bench, experiment, measured, workload
from wirecost.breakdown import Phase
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.corrections import correction_spread, workload_corrections
from wirecost.calibration.inputs.gather import Inputs, gather
from wirecost.calibration.inputs.runs import Environment, Observed, from_engine
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.result import Calibration
from wirecost.calibration.runs import fit_runs, on_one_gpu
from wirecost.calibration.saved import read, write
from wirecost.costmodel.iteration import Iteration
from wirecost.costmodel.setup import setup
from wirecost.costmodel.workload_correction import key_of, residual_of
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.prediction.interval import UNDETERMINED_SPREAD, workload_spread
from wirecost.prediction.predict import predict
from wirecost.spec import Plan, Precision, Stack, Workload
from wirecost.spec.presets import named
from wirecost.spec.stack_costs import WorkloadCorrection

MACHINE_OF_RUNS = Environment.model_validate(ENVIRONMENT)
ODD = 1.4
"""How much longer one workload takes than the formulas can have it."""


def run(layers: int, hidden: int, micro_batch: int, factor: float = 1.0, name: str = "run", **changes) -> Observed:
    one = experiment(layers, hidden, micro_batch)
    found = from_engine(one, measured(one, factor, **changes), MACHINE_OF_RUNS, name)
    assert found is not None
    return found


def runs() -> list[Observed]:
    return [
        run(layers, hidden, size, ODD if hidden == 384 else 1.0)
        for layers, hidden in ((4, 256), (2, 384), (8, 128))
        for size in (2, 4, 8)
    ]


def calibrated(of: list[Observed], tmp_path: Path) -> Calibration:
    found = gather([bench(tmp_path / "bench.json", 2)], TraceOptions())
    return calibrate(Inputs(runs=of, benches=found.benches, collectives=found.collectives))


def predicted_s(made: Calibration, layers: int, hidden: int, micro_batch: int) -> float:
    plan = Plan.model_validate(named("plan", "all-reduce"))
    (cluster,) = made.clusters.values()
    assert cluster.shared_cores is not None
    # The runs were kept to one of the machine's cores.
    cluster = cluster.model_copy(update={"shared_cores": cluster.shared_cores.model_copy(update={"count": 1})})
    model = Workload.model_validate(workload(layers, hidden))
    batch = {"micro_batch": micro_batch, "global_batch": micro_batch}
    found = predict(setup(model, plan, cluster, stack=made.stacks[Precision.FP32], gpus=1, **batch))
    return float(found.times.total_s)


def test_a_workload_that_the_formulas_miss_is_predicted_as_its_runs_had_it(tmp_path: Path) -> None:
    made = calibrated(runs(), tmp_path)
    for micro_batch in (2, 4, 8):
        one = run(2, 384, micro_batch, ODD)
        assert predicted_s(made, 2, 384, micro_batch) == pytest.approx(one.iteration_s, rel=0.03)
    # Between and just beyond what was run; and it survives the file.
    write(made, tmp_path / "out")
    cluster, stack = read(tmp_path / "out").chosen(None, Precision.FP32, None, "here")
    assert stack.accuracy.workload_corrections == made.stacks[Precision.FP32].accuracy.workload_corrections
    assert cluster.name in made.clusters
    for micro_batch in (3, 12):
        one = run(2, 384, micro_batch, ODD)
        assert predicted_s(made, 2, 384, micro_batch) == pytest.approx(one.iteration_s, rel=0.05)


def test_another_workload_and_a_far_micro_batch_are_the_formulas(tmp_path: Path) -> None:
    stack = calibrated(runs(), tmp_path).stacks[Precision.FP32]
    model = Workload.model_validate(workload(2, 384))
    assert residual_of(stack.accuracy.workload_corrections, model, 4) is not None
    assert residual_of(stack.accuracy.workload_corrections, model, 1) is not None
    assert residual_of(stack.accuracy.workload_corrections, model, 17) is None
    other = model.model_copy(update={"layers": 3})
    assert residual_of(stack.accuracy.workload_corrections, other, 4) is None
    assert workload_spread(stack, other, 4) == stack.accuracy.spread
    assert stack.accuracy.workload_correction_spread is not None
    assert workload_spread(stack, model, 4) == min(
        stack.accuracy.workload_correction_spread, stack.accuracy.spread
    )
    # What is written down differently is the same; what the formulas see differently isn't.
    assert residual_of(
        stack.accuracy.workload_corrections,
        model.model_copy(update={"name": "x", "ffn_hidden": 4 * 384, "kv_heads": 4}),
        4,
    )
    for change in ({"kv_heads": 2}, {"activation": "swiglu"}, {"tied_embeddings": False}, {"ffn_hidden": 512}):
        assert residual_of(stack.accuracy.workload_corrections, model.model_copy(update=change), 4) is None


def test_disturbed_runs_count_where_there_are_no_others() -> None:
    warning = diagnostic("busy_machine", "other programs were busy")
    busy = run(4, 256, 4, 3.0, diagnostics=(warning,))
    quiet = run(4, 256, 4)
    modelled = {part: np.full(2, quiet.parts[part]) for part in quiet.parts}
    (both,) = workload_corrections([busy, quiet], modelled)
    assert both.compute == pytest.approx(1)
    assert both.runs == 1
    (alone,) = workload_corrections([busy], modelled)
    assert alone.compute == pytest.approx(3, rel=1e-4)


def test_the_spread_is_that_of_runs_predicted_by_their_neighbours() -> None:
    sizes = (1, 2, 4, 8, 16)
    of = [run(4, 256, size) for size in sizes]
    # Ratios 1, e^0.2, 1, e^0.2, 1: each lies 0.2 off its neighbours' mean.
    high = [math.exp(0.2 * (n % 2)) for n in range(len(sizes))]
    modelled = {p: np.array([o.parts[p] / h for o, h in zip(of, high, strict=True)]) for p in of[0].parts}
    seen = workload_corrections(of, modelled)
    assert correction_spread(of, seen, 0.05) == pytest.approx(0.2, rel=0.01)
    assert correction_spread(of[:3], seen[:3], 0.05) is None


def test_single_runs_leave_the_spread_to_judgement(tmp_path: Path) -> None:
    of = [run(4, 256, 4), run(2, 384, 4), run(8, 128, 4)]
    stack = calibrated(of, tmp_path).stacks[Precision.FP32]
    assert stack.accuracy.workload_correction_spread is None
    assert workload_spread(stack, of[0].workload, 4) == min(stack.accuracy.spread, UNDETERMINED_SPREAD)


def test_precisions_share_one_gpu_each_with_its_own_efficiency(tmp_path: Path) -> None:
    fit = fit_runs(runs())
    gpu = fit.gpu.model_copy(update={"architecture": "hopper"})
    low, high = (replace(fit, gpu=gpu.model_copy(update={"matrix_efficiency": reached})) for reached in (0.6, 0.8))
    one, other = on_one_gpu([low, high])
    assert one.gpu == other.gpu
    assert one.gpu.matrix_efficiency == 0.8
    for name in ("matrix_efficiency", "attention_efficiency", "vocabulary_efficiency"):
        assert one.stack.value(name) == pytest.approx(0.75 * fit.stack.value(name))
        assert other.stack.value(name) == fit.stack.value(name)


def test_a_network_inside_a_host_is_its_own_and_hosts_hold_the_fastest(tmp_path: Path) -> None:
    """Two links inside a host, benchmarked for their own sake, and a network between hosts."""
    files = [
        bench(tmp_path / "slow.json", 2, "shm", inside=True, slower=4.0),
        bench(tmp_path / "fast.json", 2, "nvlink", inside=True),
        bench(tmp_path / "between.json", 2),
    ]
    found = gather(files, TraceOptions())
    made = calibrate(Inputs(runs=runs(), benches=found.benches, collectives=found.collectives))
    rates = {name: cluster.intra_node.rate for name, cluster in made.clusters.items()}
    assert set(rates) == {"shm", "nvlink", "emulated-100m"}
    assert rates["nvlink"] == rates["emulated-100m"] > 3 * rates["shm"]


BOUND = (diagnostic("launch_bound", "the host takes longer"),)


def modelled(of: list[Observed], device: float) -> dict[str, np.ndarray]:
    """Formulas that have every run's phases as measured, and its kernels at a part of forward and backward."""
    found = {p: np.array([o.parts.get(p, 0.0) for o in of]) for p in ("forward", "backward", "optimizer", "other")}
    return found | {"device": device * (found["forward"] + found["backward"]) + found["optimizer"]}


def test_runs_that_waited_for_the_host_tell_its_time_and_the_others_the_devices() -> None:
    of = [run(4, 256, 2, diagnostics=BOUND), run(4, 256, 8), run(4, 256, 16), run(2, 384, 2, diagnostics=BOUND)]
    waited, small, large, alone = workload_corrections(of, modelled(of, 0.8))
    assert (waited.compute, waited.optimizer) == (None, None)
    assert waited.host_s == pytest.approx(of[0].parts["forward"] + of[0].parts["backward"], rel=1e-4)
    assert waited.host_once_s == pytest.approx(of[0].parts["optimizer"] + of[0].parts["other"], rel=1e-4)
    for one in (small, large):
        assert one.compute == pytest.approx(1 / 0.8, rel=1e-4)
        assert (one.optimizer, one.host_s) == (pytest.approx(1), None)
    # Without a run of the other kind there is nothing to tell them apart by.
    assert (alone.compute, alone.host_s) == (pytest.approx(1), None)
    left = residual_of((waited, small, large), of[0].workload, 4)
    assert left is not None
    assert (left.compute, left.host_s) == (pytest.approx(1 / 0.8, rel=1e-4), waited.host_s)


def test_the_host_runs_ahead_while_the_network_is_waited_for(tmp_path: Path) -> None:
    """An iteration takes what the device and the network take, or what the host takes; it goes on while the network is
    waited for, but only so far."""
    made = calibrated(runs(), tmp_path)
    (cluster,) = made.clusters.values()
    cluster = cluster.model_copy(update={"shared_cores": None})
    stack = made.stacks[Precision.FP32]
    plan = Plan.model_validate(named("plan", "all-reduce"))
    model = Workload.model_validate(workload(4, 256))
    first, second, *_ = stack.accuracy.workload_corrections
    assert first.key == second.key == key_of(model)
    once_s = 0.001

    def waiting(host_s: float, ahead_s: float = 0.0) -> Stack:
        waited = second.model_copy(
            update={"compute": None, "optimizer": None, "host_s": host_s, "host_once_s": once_s}
        )
        return stack.with_values({"workload_corrections": (first, waited), "run_ahead_s": ahead_s})

    def times(of: Stack, ranks: int) -> Iteration:
        batch = {"micro_batch": 4, "global_batch": 4 * ranks}
        return predict(setup(model, plan, cluster, stack=of, gpus=ranks, **batch)).times

    quick = waiting(1e-6, 1e9)
    device_s, network_s = float(times(quick, 1).total_s), float(times(quick, 2).gradient_s)
    assert float(times(quick, 2).total_s) > device_s + network_s / 2
    alone = times(waiting(10.0), 1)
    assert float(alone.total_s) == pytest.approx(10 + once_s)
    assert float(alone.host_s) == pytest.approx(10 + once_s - device_s)
    host_s = device_s + network_s / 2
    assert float(times(waiting(host_s, 1e9), 1).total_s) == pytest.approx(host_s + once_s)
    for ahead_s, expected in (
        (1e9, float(times(quick, 2).total_s)),
        (0.0, host_s + once_s + network_s),
        (network_s / 4, host_s + once_s + network_s * 3 / 4),
    ):
        assert float(times(waiting(host_s, ahead_s), 2).total_s) == pytest.approx(expected)
    assert workload_spread(waiting(host_s), model, 4) == stack.accuracy.spread


def test_the_pace_of_a_host_is_the_mean_of_its_runs_whatever_the_micro_batch() -> None:
    model = Workload.model_validate(workload(4, 256))
    seen = [
        WorkloadCorrection(key=key_of(model), micro_batch=4, runs=1, host_s=0.04, host_once_s=0.01),
        WorkloadCorrection(key=key_of(model), micro_batch=8, runs=1, host_s=0.09, host_once_s=0.01),
        WorkloadCorrection(key=key_of(model), micro_batch=64, runs=1, compute=1.2, optimizer=0.9),
    ]
    for micro_batch in (2, 4, 16, 128):
        left = residual_of(seen, model, micro_batch)
        assert left is not None
        assert left.host_s == pytest.approx(0.06)
        assert left.host_once_s == pytest.approx(0.01)
        assert left.compute == pytest.approx(1.2)
    told = residual_of(seen[2:], model, 64)
    assert told is not None
    assert told.host_s is None


def test_runs_tell_how_unsteady_their_host_is(tmp_path: Path) -> None:
    one = experiment(4, 256, 2)
    steady = measured(one)
    window_ns = steady.iterations[0].parts.window_ns
    times = [round(window_ns * factor) for factor in (0.9, 1.0, 1.1, 1.0)]
    iterations = tuple(
        steady.iterations[0].model_copy(
            update={"parts": steady.iterations[0].parts.model_copy(update={"window_ns": ns})}
        )
        for ns in times
    )
    four = from_engine(one, steady.model_copy(update={"iterations": iterations}), MACHINE_OF_RUNS, "run")
    assert four is not None
    assert four.jitter == pytest.approx(math.sqrt(0.02 / 3), rel=1e-3)
    three = from_engine(one, steady, MACHINE_OF_RUNS, "run")
    assert three is not None
    assert three.jitter is None  # too few to tell
    both = experiment(4, 256, 2, hosts=2)
    together = from_engine(
        both, measured(both).model_copy(update={"iterations": iterations}), MACHINE_OF_RUNS, "run"
    )
    assert together is not None
    assert together.jitter is None  # these have the slower one's pace

    def told(*of: Observed) -> float:
        return calibrated(list(of), tmp_path).stacks[Precision.FP32].host.jitter

    other = replace(four, jitter=0.02)
    assert told(three) == 0
    assert told(four, three, other) == pytest.approx((math.sqrt(0.02 / 3) + 0.02) / 2, rel=1e-2)
    # What held up one run, or an iteration of it, is no pace.
    assert told(other, other, replace(four, jitter=2.0)) == 0.02
    held = iterations[0].model_copy(
        update={"parts": iterations[0].parts.model_copy(update={"window_ns": 50 * window_ns})}
    )
    much = from_engine(
        one, steady.model_copy(update={"iterations": (*iterations * 5, held)}), MACHINE_OF_RUNS, "run"
    )
    assert much is not None
    assert much.jitter is not None
    assert much.jitter < 0.45
    assert told(replace(four, diagnostics=(diagnostic("busy_machine", "other programs"),)), other) == 0.02
    on_gpu = replace(four, on_cpu=False, device="NVIDIA H200", cores=None)
    fits = [
        fit_runs([replace(on_gpu, launch_bound=bound)], gpu_name="H200-SXM-141GB").stack.host.jitter
        for bound in (True, False)
    ]
    assert fits == [pytest.approx(math.sqrt(0.02 / 3), rel=1e-2), 0]


@pytest.mark.parametrize(
    ("device", "diagnostics", "expected"), [("cpu", (), 1.4), ("cuda", BOUND, 1.4), ("cuda", (), 1.0)]
)
def test_of_runs_at_their_hosts_pace_the_mean_counts(
    device: str, diagnostics: tuple[Diagnostic, ...], expected: float
) -> None:
    """A host that goes between two paces, and an iteration that something else held up."""
    one = experiment(4, 256, 2)
    steady = measured(one)
    start = steady.iterations[0]
    iterations = tuple(
        start.model_copy(
            update={
                "name": str(number),
                "phases": {phase: round(ns * factor) for phase, ns in start.phases.items()},
            }
        )
        for number, factor in enumerate((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.8, 1.8, 1.4, 50.0))
    )
    found = from_engine(
        one.model_copy(update={"device": device}),
        steady.model_copy(update={"iterations": iterations, "diagnostics": diagnostics}),
        Environment.model_validate(ENVIRONMENT | {"gpus": ["NVIDIA H200"]}),
        "run",
    )
    assert found is not None
    assert found.parts["forward"] == pytest.approx(expected * start.phases[Phase.FORWARD] * 1e-9, rel=1e-3)
