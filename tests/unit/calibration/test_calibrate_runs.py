"""One-rank runs and a benchmark become a cluster and a stack that predict more ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wirecost.breakdown import Breakdown, Iteration, Parts, ResultWarning, Source
from wirecost.calibration.assemble import calibrate, chosen, read, write
from wirecost.calibration.sources import Found, Told, gather, read_bench
from wirecost.errors import SpecError, WirecostError
from wirecost.model.cores import bubble_s, slowdown
from wirecost.model.predict import predict
from wirecost.model.setup import layout_of, setup
from wirecost.spec import Cluster, Cores, Experiment, Plan, Precision, Stack, Study, Workload, to_yaml
from wirecost.spec.presets import named
from wirecost.study.held_against import hold_against
from wirecost.study.predicted import predict_study, read_predictions, write_predictions
from wirecost.study.store import Outcome, Result, Status

ENVIRONMENT = {"processor": "Abacus 9", "cores": 1, "machine_cores": 2, "memory_bytes": 8 << 30, "gpus": []}
TRUTH = Stack.model_validate(
    named("stack", "engine-cpu") | {"host_forward_s": 9e-4, "host_backward_s": 1.4e-3, "optimizer_bytes": 20}
)
MACHINE = Cluster.model_validate(
    {
        "name": "true",
        "gpu": {
            "name": "cpu",
            "architecture": "cpu",
            "memory_bytes": 8 << 30,
            "memory_bandwidth_Bps": 10e9,
            "peak_flops": {"fp32": 70e9},
            "matrix_efficiency": 1.0,
            "memory_efficiency": 1.0,
            "source": "made up",
        },
        "gpus_per_node": 1,
        "nodes": 4,
        "intra_node": "shared-memory",
        "inter_node": {
            "name": "slow",
            "rate": "100 Mb/s",
            "efficiency": 1.0,
            "half_rate_bytes": 1.0,
            "latency": "300 us",
            "latency_per_step": "1 us",
            "source": "made up",
        },
        "cores": {"count": 2, "threads": 1, "shared_by": "all", "source": "made up"},
    }
)
RATE_BPS = 100e6


def workload(layers: int, hidden: int) -> dict[str, Any]:
    return {
        "name": f"w{layers}x{hidden}", "layers": layers, "hidden": hidden, "heads": 4, "vocab_size": 2048,
        "sequence_length": 128,
    }  # fmt: skip


def experiment(layers: int, hidden: int, micro_batch: int, hosts: int = 1, **changes: Any) -> Experiment:
    return Experiment.model_validate(
        {
            "workload": workload(layers, hidden),
            "plan": named("plan", "all-reduce"),
            "fabric": named("fabric", "emulated-100m"),
            "scaling": "weak",
            "hosts": hosts,
            "global_batch": micro_batch * hosts,
            "micro_batch": micro_batch,
            **changes,
        }
    )


def measured(one: Experiment, factor: float = 1.0, **changes: Any) -> Breakdown:
    """What the engine would measure if the model were true; runs of one rank are kept to one core."""
    count = 1 if one.ranks == 1 else 2
    assert MACHINE.cores is not None
    machine = MACHINE.model_copy(update={"cores": MACHINE.cores.model_copy(update={"count": count})})
    made = setup(
        one.workload, one.plan, machine, stack=TRUTH, gpus=one.ranks,
        micro_batch=one.micro_batch, global_batch=one.global_batch,
    )  # fmt: skip
    found = predict(made).breakdown
    times = {k: round(v * factor) for k, v in found.iterations[0].phases.items() if v}
    total = sum(times.values())
    exposed = min(round(found.iterations[0].parts.exposed_comm_ns * factor), total)
    parts = Parts(
        window_ns=total, compute_only_ns=total - exposed, overlapped_ns=0, exposed_comm_ns=exposed,
        exposed_memory_ns=0, idle_ns=0,
    )  # fmt: skip
    iterations = tuple(
        Iteration(rank=rank, name=str(i), parts=parts, phases=times) for rank in range(one.ranks) for i in range(3)
    )
    return Breakdown(
        source=Source.MEASURED, title=one.slug, world_size=one.ranks, iterations=iterations, **changes
    )


def keep(root: Path, one: Experiment, breakdown: Breakdown) -> Path:
    folder = root / "experiments" / one.slug
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(to_yaml(one))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "breakdown.json").write_text(breakdown.model_dump_json())
    (folder / "status.json").write_text(Outcome(status=Status.DONE).model_dump_json())
    return folder


def bench(path: Path, hosts: int, fabric: str = "emulated-100m", **changes: Any) -> Path:
    rows = [
        {
            "collective": "all_reduce", "size_bytes": size, "count": size // 4, "dtype": "float", "redop": "sum",
            "root": None, "mode": "in_place", "ranks": hosts, "algbw_Bps": None, "busbw_Bps": None,
            "time_ns": (2 * (hosts - 1) / hosts * size * 8 / RATE_BPS + 3e-4) * 1e9,
        }
        for size in (2**k for k in range(17, 25))
    ]  # fmt: skip
    document = {
        "format_version": 1,
        "request": {
            "hosts": hosts, "ranks_per_host": 1, "groups": [list(range(hosts))], "backend": "gloo",
            "fabric": {"name": fabric, "emulate": {"rate": "100 Mb/s"}},
        },
        "network": {"name": fabric, "emulated": True, "nominal_rate_bps": RATE_BPS},
        "rows": rows,
        "fits": [],
    } | changes  # fmt: skip
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one-rank")
    for layers, hidden in ((4, 256), (2, 384), (8, 128)):
        for micro_batch in (1, 4, 8):
            one = experiment(layers, hidden, micro_batch)
            keep(root, one, measured(one))
    return root


@pytest.fixture(scope="module")
def folder(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("mine")
    files = [bench(where / f"bench-{hosts}.json", hosts) for hosts in (2, 4)]
    made = calibrate(gather([store, *files], Told()))
    write(made, where / "out")
    (fit,) = made.devices
    assert max(map(abs, fit.errors)) < 0.06
    assert fit.held_out is not None
    assert max(map(abs, fit.held_out)) < 0.1
    told = {one.name: one for one in fit.told}
    assert told["gpu peak_flops"].value == pytest.approx(70e9, rel=0.2)
    assert told["stack optimizer_bytes"].value == pytest.approx(20, rel=0.1)
    assert not told["stack vocabulary_efficiency"].told
    return where / "out"


def test_the_folder_holds_what_predicts(folder: Path) -> None:
    made = read(folder)
    assert list(made.stacks) == [Precision.FP32]
    assert list(made.clusters) == ["emulated-100m"]
    text = (folder / "stack-fp32.yaml").read_text()
    assert "# fitted, within" in text
    assert "# start value: the runs don't tell" in text
    cluster, stack = chosen(folder, None, Precision.FP32, None)
    assert cluster.cores is not None
    assert (cluster.cores.count, cluster.cores.threads) == (2, 1)
    assert "fitted" in (stack.calibration or "")
    with pytest.raises(SpecError, match="not calibrated"):
        chosen(folder, None, Precision.BF16, None)
    with pytest.raises(SpecError, match="emulated-100m"):
        chosen(folder, "emulated-100", Precision.FP32, None)


def test_more_ranks_are_predicted_as_the_truth_has_them(folder: Path) -> None:
    cluster, stack = chosen(folder, None, Precision.FP32, None)
    plan = Plan.model_validate(named("plan", "all-reduce"))
    model = Workload.model_validate(workload(4, 256))
    compute = []
    for ranks in (2, 4):
        truth, guess = (
            predict(setup(model, plan, where, stack=what, gpus=ranks, micro_batch=4, global_batch=4 * ranks))
            for where, what in ((MACHINE, TRUTH), (cluster.model_copy(update={"nodes": ranks}), stack))
        )
        assert float(guess.times.total_s) == pytest.approx(float(truth.times.total_s), rel=0.1)
        compute.append(float(guess.times.compute_s))
    # Four ranks take turns on two cores.
    assert compute[1] == pytest.approx(2 * compute[0])


STUDY = Study.model_validate(
    {
        "name": "s",
        "workloads": [workload(4, 256)],
        "fabrics": ["emulated-100m", "emulated-1g"],
        "plans": ["all-reduce", "ddp", "all-reduce-bf16"],
        "hosts": [2],
        "scaling": [{"kind": "weak", "micro_batch": 4}],
    }
)


def test_a_study_is_predicted_then_held_against_what_was_measured(folder: Path, tmp_path: Path) -> None:
    cells = predict_study(STUDY, read(folder))
    refused = [cell for cell in cells if cell.prediction is None]
    assert {cell.experiment.plan.name for cell in refused} == {"all-reduce-bf16"}
    assert all("bf16 was not calibrated" in (cell.refused or "") for cell in refused)
    codes = {
        cell.experiment.fabric.name: {w.code for w in cell.prediction.breakdown.warnings}
        for cell in cells
        if cell.prediction
    }
    assert {"uncalibrated_network", "not_benchmarked"} <= codes["emulated-1g"]
    assert not {"uncalibrated_network", "not_benchmarked"} & codes["emulated-100m"]
    write_predictions(cells, STUDY, {"calibration": str(folder)}, tmp_path / "p")
    with pytest.raises(SpecError, match="already"):
        write_predictions(cells, STUDY, {}, tmp_path / "p")
    said = read_predictions(tmp_path / "p")
    assert {b.source for b in said.values()} == {Source.PREDICTED}
    results = []
    for cell in cells:
        if cell.experiment.plan.precision == "fp32":
            # On the slow network the overlapping strategy is made slower than the other: an order to get wrong.
            slow = cell.experiment.plan.name == "ddp" and cell.experiment.fabric.name == "emulated-100m"
            breakdown = measured(cell.experiment, 2.0 if slow else 1.0)
            results.append(Result(cell.experiment, Outcome(status=Status.DONE), breakdown, tmp_path))
    other = experiment(4, 256, 4, 2, fabric=named("fabric", "emulated-300m"))
    results.append(Result(other, Outcome(status=Status.DONE), measured(other), tmp_path))
    held = hold_against(results, said)
    assert held.summary()["cells"] == 4
    wrong = {o.network: o.wrong_pairs for o in held.orders}
    assert wrong["emulated-100m"] == (("all-reduce", "ddp"),)
    assert held.pairs_right[0] == held.pairs_right[1] - 1
    assert [reason for _, reason in held.left_out] == ["measured, but not predicted"]
    cell = next(c for c in held.cells if c.plan == "all-reduce" and c.network == "emulated-100m")
    assert abs(cell.error) < 0.1
    assert cell.fraction_error is not None
    assert abs(cell.fraction_error) < 0.05
    assert json.loads(json.dumps(held.as_json()))["pairs"] == held.pairs_right[1]
    with pytest.raises(SpecError, match="no measured cell"):
        hold_against([], said)


def test_a_study_of_more_iterations_is_the_same_prediction(folder: Path, tmp_path: Path) -> None:
    cells = predict_study(STUDY, read(folder))
    said = {c.experiment.slug: c.prediction.breakdown for c in cells if c.prediction}
    longer = cells[0].experiment.model_copy(update={"iterations": 99})
    held = hold_against([Result(longer, Outcome(status=Status.DONE), measured(longer), tmp_path)], said)
    assert held.summary()["cells"] == 1


def test_the_commands_do_all_of_it(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wirecost.cli import main

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ending:
            main([str(a) for a in arguments])
        assert not ending.value.code
        return capsys.readouterr().out

    study, mine, said = tmp_path / "study.yaml", tmp_path / "mine", tmp_path / "said"
    study.write_text(to_yaml(STUDY))
    said_of_fit = json.loads(
        run("calibrate", store, bench(tmp_path / "b.json", 2), "--out", mine, "--format", "json")
    )
    assert {Path(p).name for p in said_of_fit["wrote"]} == {"stack-fp32.yaml", "cluster-emulated-100m.yaml"}
    table = run("predict", "--study", study, "--calibration", mine, "--out", said)
    assert "predicted" in table
    assert "not_benchmarked" in table
    one = STUDY.experiments()[0]
    keep(tmp_path / "runs", one, measured(one))
    held = json.loads(run("validate", tmp_path / "runs", "--predictions", said, "--format", "json"))
    assert held["summary"]["cells"] == 1
    assert "measured" in run("validate", tmp_path / "runs", "--predictions", said)
    options = ("--calibration", mine, "--precision", "fp32", "--data-parallel", "all_reduce", "-n", "2")
    assert "emulated-100m" in run("predict", "gpt-tiny", *options)
    assert "Mb/s" in run("need", "gpt-tiny", *options, "-b", "4", "--fraction", "0.3")


def test_disturbed_runs_weigh_less_and_are_named(store: Path) -> None:
    one = experiment(4, 256, 4)
    warning = ResultWarning(code="busy_machine", message="other programs were busy")
    found = gather([store], Told())
    from wirecost.calibration.observed import from_engine

    busy = from_engine(one, measured(one, 3.0, warnings=(warning,)), ENVIRONMENT, "busy")
    assert busy is not None
    assert busy.noise > 1
    found.runs.append(busy)
    (fit,) = calibrate(found).devices
    assert fit.doubts == ["other programs were busy"]
    assert np.median(np.abs(fit.errors)) < 0.1


def test_runs_of_several_ranks_can_be_left_out(store: Path, tmp_path: Path) -> None:
    for hosts in (1, 2):
        one = experiment(4, 256, 4, hosts)
        keep(tmp_path, one, measured(one))
    found = gather([tmp_path], Told(), ranks=1)
    assert [run.ranks for run in found.runs] == [1]
    assert "1 runs of other than 1 ranks" in found.skipped[0]
    overlapping = experiment(4, 256, 4, 2, plan=named("plan", "ddp"))
    keep(tmp_path, overlapping, measured(overlapping))
    assert any("overlap" in reason for reason in gather([tmp_path], Told()).skipped)


@pytest.mark.parametrize(("backend", "kept"), [("gloo", 4.0), ("nccl", 8.0)])
def test_gloos_own_reduce_scatter_is_not_the_engines(tmp_path: Path, backend: str, kept: float) -> None:
    """It is an all-reduce of twice the bytes; the engine's is the all-to-all beside it."""
    path = bench(tmp_path / "bench.json", 2)
    document = json.loads(path.read_text())
    document["request"]["backend"] = backend
    document["rows"] = [
        row | {"collective": op, "time_ns": ns_per_byte * row["size_bytes"]}
        for op, ns_per_byte in (("reduce_scatter", 8.0), ("all_to_all", 4.0))
        for row in document["rows"]
    ]
    path.write_text(json.dumps(document))
    found = read_bench(path)
    assert found is not None
    times = [m.seconds / m.size_bytes * 1e9 for m in found.measured() if m.op == "reduce_scatter"]
    assert times == pytest.approx([kept] * 8)


def test_what_cannot_be_calibrated_on_is_refused(store: Path, tmp_path: Path) -> None:
    one = experiment(4, 256, 4)
    alone = tmp_path / "b.json"
    alone.write_text(measured(one).model_dump_json())
    with pytest.raises(SpecError, match="what ran"):
        gather([alone], Told())
    imported = measured(one).model_copy(update={"source": Source.IMPORTED})
    alone.write_text(imported.model_dump_json())
    with pytest.raises(SpecError, match="--workload"):
        gather([alone], Told())
    alone.write_text(imported.model_copy(update={"source": Source.PREDICTED}).model_dump_json())
    with pytest.raises(SpecError, match="prediction"):
        gather([alone], Told())
    with pytest.raises(WirecostError):
        gather([tmp_path / "nothing"], Told())
    with pytest.raises(SpecError, match="nothing to calibrate on"):
        calibrate(Found())
    with pytest.raises(SpecError, match="tells nothing about compute"):
        calibrate(gather([bench(tmp_path / "n.json", 2)], Told()))
    with pytest.raises(SpecError, match="no sound benchmark"):
        gather([bench(tmp_path / "n.json", 2, rows=[{"size": 1}])], Told())
    with pytest.raises(SpecError, match="no calibration"):
        read(tmp_path)
    unfinished = keep(tmp_path / "u", one, measured(one))
    (unfinished / "breakdown.json").unlink()
    with pytest.raises(SpecError, match="did not finish"):
        gather([unfinished], Told())
    found = gather([store], Told())
    found.runs.append(replace(found.runs[0], device="Another"))
    with pytest.raises(SpecError, match="different devices"):
        calibrate(found)


def test_a_trace_calibrates_a_known_gpu_and_its_link(tmp_path: Path) -> None:
    model = Workload.model_validate(named("workload", "gpt-1.3b"))
    plan = Plan(name="t", data_parallel="all_reduce", precision="bf16")  # type: ignore[arg-type]
    base = Cluster.model_validate(named("cluster", "thetagpu-80"))
    made = setup(model, plan, base, stack=Stack.model_validate(named("stack", "engine-cuda")), gpus=8)
    truth = predict(made)
    call = {
        "op": "all_reduce",
        "group": "0",
        "group_size": 8,
        "count": 4,
        "bytes": 4 << 28,
        "duration_ns": 60_000_000,
    }
    slower = truth.breakdown.iterations[0].parts
    parts = slower.model_copy(
        update={
            "window_ns": slower.window_ns + slower.compute_only_ns,
            "compute_only_ns": 2 * slower.compute_only_ns,
        }
    )
    breakdown = Breakdown.model_validate(
        {
            "source": "imported", "title": "t", "world_size": 8, "collectives": [{"rank": 0, **call}],
            "iterations": [{"rank": 0, "name": "1", "parts": parts.model_dump()}],
        }
    )  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(breakdown.model_dump_json())
    found = gather([path], Told(model, plan, 1, 8, 8))
    fitted = calibrate(found, base=base)
    (fit,) = fitted.devices
    assert abs(fit.errors[0]) < 0.3
    (network,) = fitted.networks
    assert network.kind == "intra"
    assert network.mape < 0.1
    assert list(fitted.clusters) == ["thetagpu-80"]
    assert fitted.clusters["thetagpu-80"].nodes == base.nodes


def test_ranks_that_share_cores() -> None:
    cores = Cores(count=4, threads=4, serial=0.5, shared_by="all", source="test")
    cluster = MACHINE.model_copy(update={"cores": cores, "nodes": 8})
    plan = Plan.model_validate(named("plan", "all-reduce"))
    model = Workload.model_validate(workload(4, 256))
    factors = []
    for ranks in (1, 2, 4, 8):
        made = setup(model, plan, cluster, stack=TRUTH, gpus=ranks)
        factor, turns = slowdown(layout_of(made), predict(made).machine)
        factors.append((float(factor), float(turns)))
    # One thread's time is 1; on four it is 0.5 + 0.5 / 4.
    expected = [(1, 1), (0.75 / 0.625, 1), (1 / 0.625, 1), (2 / 0.625, 2)]
    assert np.array(factors) == pytest.approx(np.array(expected))
    # A pipeline whose stages take turns is as long as all the work, not longer by the bubble.
    assert bubble_s(8.0, 2.0, 2.0) == 0.0
    assert bubble_s(8.0, 2.0, 1.0) == 2.0
