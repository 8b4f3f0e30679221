"""One-rank runs and a benchmark become a cluster and a stack that predict more ranks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.calibration import ENVIRONMENT, MACHINE, TRUTH, bench, experiment, keep, measured, workload
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.inputs.benchmarks import read_bench
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.runs import Environment, from_engine
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.links import fit_benches
from wirecost.calibration.saved import read
from wirecost.costmodel.setup import setup
from wirecost.diagnostics import diagnostic
from wirecost.errors import SpecError
from wirecost.prediction.predict import predict
from wirecost.spec import Plan, Precision, Workload
from wirecost.spec.presets import named

MACHINE_OF_RUNS = Environment.model_validate(ENVIRONMENT)


def test_the_folder_holds_what_predicts(folder: Path) -> None:
    made = read(folder)
    assert list(made.stacks) == [Precision.FP32]
    assert list(made.clusters) == ["emulated-100m"]
    text = (folder / "stack-fp32.yaml").read_text()
    assert "# fitted, within" in text
    assert "# fitted, but determined only together with others" in text
    cluster, stack = read(folder).chosen(None, Precision.FP32, None, "here")
    assert cluster.shared_cores is not None
    assert (cluster.shared_cores.count, cluster.shared_cores.threads) == (2, 1)
    assert "fitted" in (stack.calibration or "")
    with pytest.raises(SpecError, match="not calibrated"):
        read(folder).chosen(None, Precision.BF16, None, "here")
    with pytest.raises(SpecError, match="emulated-100m"):
        read(folder).chosen("emulated-100", Precision.FP32, None, "here")


def test_more_ranks_are_predicted_as_the_truth_has_them(folder: Path) -> None:
    cluster, stack = read(folder).chosen(None, Precision.FP32, None, "here")
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


def test_disturbed_runs_weigh_less_and_are_named(store: Path) -> None:
    one = experiment(4, 256, 4)
    warning = diagnostic("busy_machine", "other programs were busy")
    found = gather([store], TraceOptions())
    busy = from_engine(one, measured(one, 3.0, diagnostics=(warning,)), MACHINE_OF_RUNS, "busy")
    assert busy is not None
    assert busy.noise > 1
    found.runs.append(busy)
    (fit,) = calibrate(found).fits
    assert fit.diagnostics == (warning,)
    assert np.median(np.abs(fit.row_errors)) < 0.1


def test_runs_of_several_ranks_can_be_left_out(store: Path, tmp_path: Path) -> None:
    for hosts in (1, 2):
        one = experiment(4, 256, 4, hosts)
        keep(tmp_path, one, measured(one))
    found = gather([tmp_path], TraceOptions(), ranks=1)
    assert [run.ranks for run in found.runs] == [1]
    assert "1 runs of other than 1 ranks" in found.diagnostics[0].message
    overlapping = experiment(4, 256, 4, 2, plan=named("plan", "ddp"))
    keep(tmp_path, overlapping, measured(overlapping))
    assert any("overlap" in d.message for d in gather([tmp_path], TraceOptions()).diagnostics)


def test_a_studys_own_benchmarks_calibrate_its_networks(tmp_path: Path) -> None:
    for layers, hidden in ((4, 256), (2, 384)):
        one = experiment(layers, hidden, 4)
        keep(tmp_path, one, measured(one))
    for hosts in (2, 4):
        site = tmp_path / "networks" / f"site-{hosts}"
        site.mkdir(parents=True)
        bench(site / "bench.json", hosts)
        # One that failed has a reason in place of a result.
        (tmp_path / "networks" / f"failed-{hosts}").mkdir()
        (tmp_path / "networks" / f"failed-{hosts}" / "failed.json").write_text("{}")
    found = gather([tmp_path], TraceOptions())
    assert [b.hosts for b in found.benches] == [2, 4]
    assert list(calibrate(found).clusters) == ["emulated-100m"]
    assert [b.hosts for b in gather([tmp_path], TraceOptions(), ranks=2).benches] == [2]


def test_a_benchmark_is_named_without_where_it_lay(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "networks"
    folder.mkdir(parents=True)
    found = read_bench(bench(folder / "slow.json", 2))
    assert found is not None
    assert found.source == "networks/slow.json"
    fit = fit_benches([found])
    assert fit.fit.inputs == ("networks/slow.json",)
    assert str(tmp_path) not in fit.curves.model_dump_json()
    with pytest.raises(SpecError, match=re.escape(found.path)):  # a mistake is said with the whole path
        fit_benches([replace(found, rows=())])


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
    times = {m.seconds / m.size_bytes * 1e9 for m in found.measured() if m.op == "reduce_scatter"}
    assert list(times) == pytest.approx([kept])
