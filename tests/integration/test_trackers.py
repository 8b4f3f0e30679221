"""The scalars of `wirecost.watch` in Weights & Biases and MLflow themselves, and the handler of `torch.profiler`."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import wirecost
from wirecost.trace import read


def train(
    iterations: int, after: Callable[[], object] = lambda: None, model: torch.nn.Module | None = None
) -> None:
    model = model or torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(iterations):
        model(torch.randn(2, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        after()


def test_an_active_run_of_weights_and_biases_gets_the_scalars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="wirecost", mode="offline") as run:
        with wirecost.watch(every=10, print_line=lambda line: None):
            train(21)
        values = dict(run.summary)
    assert values["wirecost/iteration"] == 20
    assert values["wirecost/iteration_ms"] > 0


def test_an_active_run_of_mlflow_gets_the_scalars(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.create_experiment("watch", artifact_location=str(tmp_path / "artifacts"))
    mlflow.set_experiment("watch")
    with mlflow.start_run() as run, wirecost.watch(every=10, print_line=lambda line: None):
        train(21)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "wirecost/iteration_ms")
    assert [entry.step for entry in history] == [10, 20]
    assert all(entry.value > 0 for entry in history)


def test_nothing_is_logged_without_an_active_run() -> None:
    lines: list[str] = []
    with wirecost.watch(every=10, print_line=lines.append):
        train(11)
    assert len(lines) == 1 and lines[0].startswith("wirecost: iteration 10:")


def test_the_handler_keeps_each_window_and_prints_its_breakdown(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = tmp_path / "new" / "traces"
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = wirecost.trace_handler(folder, print_line=lines.append)
    activities = [torch.profiler.ProfilerActivity.CPU]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=handler) as profiler:
            train(8, profiler.step, model)
    finally:
        dist.destroy_process_group()
    paths = sorted(folder.iterdir())
    assert [path.name for path in paths] == ["rank0_4.json.gz", "rank0_8.json.gz"]
    assert len(lines) == 2
    for path, line in zip(paths, lines, strict=True):
        assert (
            line.startswith(f"wirecost: {path}: ")
            and "ms under the profiler, " in line
            and "exposed communication" in line
        )
        assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        (trace,) = read(path, jobs=1).traces
        assert len([i for i in trace.iterations if not i.window.cut]) == 2
