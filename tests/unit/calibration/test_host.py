"""The host's measured times become values of a calibrated stack."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.breakdown.statistics import Spread
from wirecost.calibration.host import (
    check_same_gpu,
    commented_values,
    counted_calls,
    host_requests,
    host_values,
    with_host_values,
    with_measured_host,
)
from wirecost.calibration.inputs.gather import Inputs, gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.result import Calibration
from wirecost.calibration.saved import read
from wirecost.costmodel.host_launch import tensor_launches_s
from wirecost.costmodel.inputs import HostTimes, Layout
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.workload_correction import corrected, key_of
from wirecost.errors import SpecError
from wirecost.spec import Device, Family, Precision, Provenance, Workload, load_spec, stack_named
from wirecost.spec.stack_costs import WorkloadCorrection
from wirecost.study import runnable
from wirecost.train import hosttimes
from wirecost.train.hosttimes import Cost, HostCost, HostRequest, MeasuredHost
from wirecost.train.hosttimes.variants import LAYERS

WORKLOAD = Workload(name="gpt", layers=4, hidden=256, heads=4, vocab_size=2048, sequence_length=128)
GPU = "NVIDIA H200"
ITERATION_S = {
    Cost.TENSOR_COLLECTIVE: 4e-3,
    Cost.SEQUENCE_COLLECTIVE: 9e-3,
    Cost.UNIT: 5e-3,
    Cost.TRANSFER: 0.4e-3,
    Cost.LAYER: 2e-3,
    Cost.GATED_LAYER: 3e-3,
}
KEYS = ("host_collective_s", "host_sequence_collective_s", "host_shard_s", "host_transfer_s")


def host(device: Device = Device.CUDA, unknown: Mapping[Cost, str] = MappingProxyType({})) -> MeasuredHost:
    costs = {}
    for cost, seconds in ITERATION_S.items():
        note = unknown.get(cost)
        spread = None if note else Spread(seconds, 0.9 * seconds, 1.2 * seconds, 8)
        calls = 4 if cost in LAYERS else 40
        costs[cost] = HostCost(cost, calls, None if note else seconds, spread, note)
    name = GPU if device is Device.CUDA else None
    return MeasuredHost(WORKLOAD, Precision.BF16, device, name, 2, 2, {}, costs)


def test_the_model_has_exactly_the_measured_time_for_the_measured_workload() -> None:
    found = host()
    stack = with_host_values(stack_named("engine-cuda"), found)
    shape, times = shape_of(WORKLOAD), HostTimes.of(stack.host)
    layout = Layout(tensor=2.0, pipeline=1.0, data=1.0, micro_batch=2.0, accumulation=2.0)
    for cost, parallel in ((Cost.TENSOR_COLLECTIVE, 0.0), (Cost.SEQUENCE_COLLECTIVE, 1.0)):
        passes = tensor_launches_s(2.0, shape, replace(layout, sequence_parallel=parallel), times)
        assert 2 * WORKLOAD.layers * sum(passes) == pytest.approx(ITERATION_S[cost], rel=1e-3)
    assert counted_calls(found, stack) == {
        Cost.TENSOR_COLLECTIVE: 2 * 4 * 4,
        Cost.SEQUENCE_COLLECTIVE: 2 * 10 * 4,
        Cost.UNIT: 2 * (2 * 4 + 1),
        Cost.TRANSFER: 2 * 2,
    }
    assert stack.host.shard_s == pytest.approx(5e-3 / 18, rel=1e-3)
    assert stack.host.transfer_s == pytest.approx(1e-4)
    assert (stack.host.forward_s, stack.host.backward_s) == pytest.approx((3 / 8 * 5e-4, 5 / 8 * 5e-4))
    assert stack.host.gated == 1.5
    assert stack.provenance is Provenance.MEASURED
    assert stack.calibration is not None
    assert stack.calibration.endswith(
        "host_backward_s, host_collective_s, host_forward_s, host_gated, host_sequence_collective_s, host_shard_s, "
        f"host_transfer_s measured by wirecost calibrate --measure-host on the host of {GPU} with gpt in bf16"
    )


def test_what_is_unknown_leaves_the_value_of_the_stack() -> None:
    before = stack_named("engine-cuda")
    after = with_host_values(before, host(unknown={Cost.TENSOR_COLLECTIVE: "no answer in 9 s"}))
    assert after.value("host_collective_s") == before.value("host_collective_s")
    assert after.value("host_shard_s") != before.value("host_shard_s")
    assert with_host_values(before, host(unknown=dict.fromkeys(Cost, "no answer"))) == before


@pytest.mark.parametrize("cost", LAYERS)
def test_layers_are_measured_of_both_kinds_or_of_none(cost: Cost) -> None:
    before = stack_named("engine-cuda")
    after = with_host_values(before, host(unknown={cost: "no answer"}))
    for key in ("host_forward_s", "host_backward_s", "host_gated"):
        assert after.value(key) == before.value(key)
    text = commented_values("host_gated: 1.0\n", host(unknown={cost: "no answer"}), before)
    assert "host_gated" not in text.partition("#")[2]


def test_a_stack_without_times_of_layers_launches_two_thirds_of_them_in_backward() -> None:
    empty = stack_named("engine-cuda").with_values({"host_forward_s": 0.0, "host_backward_s": 0.0})
    values = host_values(host(), empty)
    assert values["host_backward_s"] == pytest.approx(2 * values["host_forward_s"], rel=1e-3)


def test_times_of_a_processor_are_not_used() -> None:
    assert host_values(host(Device.CPU), stack_named("engine-cuda")) == {}
    before = stack_named("engine-cpu")
    text = "host_transfer_s: 0.0001\n"
    assert commented_values(text, host(Device.CPU), before) == text
    assert with_host_values(before, host(Device.CPU)) == before


def test_the_stack_of_another_precision_stays() -> None:
    stacks = {precision: stack_named("engine-cuda") for precision in (Precision.BF16, Precision.FP16)}
    found = with_measured_host(Calibration(stacks=stacks), host())
    assert found.stacks[Precision.FP16] == stacks[Precision.FP16]
    assert found.stacks[Precision.BF16].host.transfer_s is not None
    assert found.hosts.keys() == {Precision.BF16}
    assert found.as_json()["hosts"]["bf16"]["device_name"] == GPU
    assert "hosts" not in Calibration(stacks=stacks).as_json()


def test_the_file_says_where_a_value_is_from() -> None:
    text = (
        "host_forward_s: 0.0002  # fitted, within 9%\nhost_collective_s: 0.0001\nhost_transfer_s: 0.0001\n"
        "host_gated: 1.5\nhost_masked: 1.0\n"
    )
    measured = host(unknown={Cost.TRANSFER: "no answer"})
    assert commented_values(text, measured, stack_named("engine-cuda")).splitlines() == [
        "host_forward_s: 0.0002  # together measured, quartiles 450 to 600 us",
        "host_collective_s: 0.0001  # measured, quartiles 113 to 150 us",
        "host_transfer_s: 0.0001",
        "host_gated: 1.5  # a gated layer measured, quartiles 675 to 900 us",
        "host_masked: 1.0",
    ]


@pytest.fixture
def gpu_runs(tmp_path: Path) -> Path:
    for micro_batch in (1, 4, 8):
        on_gpu = experiment(4, 256, micro_batch, device="cuda", plan={"name": "p", "precision": "bf16"})
        breakdown = measured(experiment(4, 256, micro_batch)).model_copy(update={"title": on_gpu.slug})
        folder = keep(tmp_path / "runs", on_gpu, breakdown)
        (folder / "environment.json").write_text(json.dumps({"gpus": [GPU]}))
    return tmp_path / "runs"


def runs_of(store: Path) -> Inputs:
    return gather([store], TraceOptions())


def test_a_precision_is_measured_with_the_smallest_workload_of_its_runs(gpu_runs: Path) -> None:
    runs = runs_of(gpu_runs).runs
    larger = replace(runs[0], workload=WORKLOAD.model_copy(update={"layers": 9}))
    encoder = replace(runs[0], workload=WORKLOAD.model_copy(update={"family": Family.BERT, "layers": 1}))
    (request,) = host_requests([larger, encoder, *runs])
    assert (request.workload.layers, request.precision, request.device) == (4, Precision.BF16, Device.CUDA)
    (request,) = host_requests(runs, WORKLOAD.model_copy(update={"layers": 9}))
    assert request.workload.layers == 9


def test_a_machine_with_another_gpu_is_refused(gpu_runs: Path) -> None:
    runs = runs_of(gpu_runs).runs
    check_same_gpu(runs, host())
    with pytest.raises(SpecError, match="runs are of NVIDIA H200, and this machine has NVIDIA A10: measure on"):
        check_same_gpu(runs, replace(host(), device_name="NVIDIA A10"))


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calibrate(capsys: pytest.CaptureFixture[str]) -> Command:
    from wirecost.cli import main

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(["calibrate", *map(str, arguments), "--measure-host"])
        captured = capsys.readouterr()
        code = ending.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return run


def refused(ending: tuple[int, str, str]) -> str:
    code, out, err = ending
    assert code == 2
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_runs_on_processors_are_refused(calibrate: Command, store: Path) -> None:
    assert "ran on processors, where the host computes as well" in refused(calibrate(store))


def test_a_benchmark_alone_is_refused(calibrate: Command, tmp_path: Path) -> None:
    assert "part of a stack, which needs runs" in refused(calibrate(bench(tmp_path / "b.json", 2)))


def test_a_model_that_the_engine_does_not_train_is_refused(calibrate: Command, gpu_runs: Path) -> None:
    line = refused(calibrate(gpu_runs, "--workload", "gemma-2-9b"))
    assert "--measure-host: workload 'gemma-2-9b'" in line


def test_a_machine_without_a_gpu_is_refused(
    calibrate: Command, gpu_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runnable, "gpus_here", lambda: 0)
    line = refused(calibrate(gpu_runs, "--out", gpu_runs / "mine"))
    assert "PyTorch finds no GPU here: measure on the machine of the runs (NVIDIA H200)" in line
    assert not (gpu_runs / "mine").exists()


def test_measured_values_are_printed_and_saved(
    calibrate: Command, gpu_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[HostRequest] = []

    def measure(request: HostRequest, progress: Any) -> MeasuredHost:
        asked.append(request)
        progress(0, request.rounds, "one_rank: ready")
        return host(unknown={Cost.UNIT: "CUDA out of memory"})

    monkeypatch.setattr(runnable, "gpus_here", lambda: 1)
    monkeypatch.setattr(hosttimes, "measure_host", measure)
    code, out, err = calibrate(gpu_runs, "--out", tmp_path / "mine", "--force")
    assert code == 0
    assert asked[0].precision is Precision.BF16
    assert "measuring host times" in err
    assert f"Host of {GPU}" in out
    assert "gpt in bf16, 2 micro-batches of 2, 4 layers, sequences of 128" in out
    assert "host_shard_s: CUDA out of memory; the stack keeps its value" in out
    assert "100 (90 to 120)" in out  # microseconds: 4 ms over 40 calls
    stack = read(tmp_path / "mine").stacks[Precision.BF16]
    values = {key: stack.value(key) for key in KEYS}
    assert values == {
        "host_collective_s": 1.25e-4,
        "host_sequence_collective_s": 1.125e-4,
        "host_shard_s": stack_named("engine-cuda").value("host_shard_s"),
        "host_transfer_s": 1e-4,
    }
    code, out, _ = calibrate(gpu_runs, "--format", "json")
    said = json.loads(out)["hosts"]["bf16"]
    assert said["stack"].pop("host_gated") == 1.5
    assert said["stack"].pop("host_forward_s") + said["stack"].pop("host_backward_s") == pytest.approx(5e-4)
    assert said["stack"] == {key: value for key, value in values.items() if key != "host_shard_s"}
    assert said["costs"]["fsdp_unit"]["seconds"] is None
    assert said["costs"]["fsdp_unit"]["note"] == "CUDA out of memory"
    code, out, _ = calibrate(gpu_runs, "--format", "csv")
    rows = {row["property"].rpartition(" ")[2]: row for row in csv.DictReader(io.StringIO(out))}
    assert float(rows["host_transfer_s"]["after"]) == 1e-4
    assert (rows["host_shard_s"]["after"], rows["host_shard_s"]["not_determined"]) == ("", "CUDA out of memory")


def test_the_correction_of_a_workload_leaves_the_times_to_launch_communication() -> None:
    correction = WorkloadCorrection(key=key_of(WORKLOAD), micro_batch=2, runs=1, compute=1.5, optimizer=1.0)
    stack = with_host_values(stack_named("engine-cuda"), host())
    stack = stack.with_values({"workload_corrections": (correction,)})
    before = machine_of(load_spec("cluster", "dgx-h100"), stack, Precision.BF16)
    after = corrected(before, stack, WORKLOAD, 2)
    assert after.host.forward_s == pytest.approx(1.5 * before.host.forward_s)  # as it was before
    for name in ("collective_s", "sequence_collective_s", "shard_s", "transfer_s"):
        assert getattr(after.host, name) == pytest.approx(getattr(before.host, name))
