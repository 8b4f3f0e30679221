"""An imported trace calibrates the GPU it ran on and the link of its collectives."""

from __future__ import annotations

from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.calibration.calibrate import Options, calibrate
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.costmodel.setup import setup
from wirecost.prediction.predict import predict
from wirecost.spec import Cluster, Plan, Stack, Workload
from wirecost.spec.presets import named


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
    found = gather([path], TraceOptions(model, plan, 1, 8, 8))
    fitted = calibrate(found, Options(cluster=base))
    of_compute, of_link = fitted.fits
    assert abs(of_compute.row_errors[0]) < 0.3
    assert of_compute.beats_presets is None
    assert "too few" in of_compute.errors.how
    assert of_link.name == "link nvlink3"
    assert of_link.errors.fitted < 0.1
    assert list(fitted.clusters) == ["thetagpu-80"]
    assert fitted.clusters["thetagpu-80"].nodes == base.nodes
