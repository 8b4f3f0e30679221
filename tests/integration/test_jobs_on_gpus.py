"""benchmarks/jobs_on_gpus.py and its jobs run on processors: a machine with GPUs is no place to find out otherwise."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def output(script: str, *options: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *options, "--device", "cpu", "--tiny"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.needs_root
def test_a_job_is_profiled_then_predicted_then_measured(tmp_path: Path) -> None:
    out, unpacked = tmp_path / "out", tmp_path / "unpacked"
    job = ("--only", "tp2")
    output("jobs_on_gpus.py", "traces", "--out", str(out), *job, "--networks", "emulated-1g")
    # Predictions are the same on another machine, to which the packed results are brought.
    packed = str(tmp_path / "packed")
    output("jobs_on_gpus.py", "pack", "--out", str(out), "--files", packed, *job)
    assert output("jobs_on_gpus.py", "unpack", "--out", str(unpacked), "--files", packed).startswith("2 traces")
    for place in (out, unpacked):
        output("jobs_on_gpus.py", "predict", "--out", str(place), *job)
    predictions = rows(out / "predictions.csv")
    assert predictions == rows(unpacked / "predictions.csv")
    assert [(p["traces_over"], p["network"], p["refused"]) for p in predictions] == [
        ("emulated-1g", "emulated-300m", ""),
        ("emulated-1g", "emulated-60m", ""),
    ]
    found = output("jobs_on_gpus.py", "measure", "--out", str(out), *job)
    assert "emulated-1g   -> emulated-60m" in found
    assert "of 1 within 2% of the job's own time" in found
    results = rows(out / "results.csv")
    assert [(r["network"], r["status"]) for r in results] == [("emulated-1g", "done"), ("emulated-60m", "done")]
    assert all(float(r["own_ms"]) > 0 and float(r["reported_ms"]) > 0 for r in results)
    assert "all " in output("jobs_on_gpus.py", "report", "--out", str(out)).splitlines()[-1]
    (pair,) = rows(out / "pairs.csv")
    assert float(pair["measured_ms"]) == pytest.approx(float(results[1]["reported_ms"]))


def test_nothing_begins_that_cannot_end_in_time(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "jobs_on_gpus.py"), "traces", "--out", str(tmp_path)]
    options = ["--only", "pp2,megatron", "--seconds", "5", "--device", "cpu", "--tiny"]
    run = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert run.stdout.count("not run: takes") == 2
    assert "megatron     skipped: needs GPUs" in run.stdout
    assert not (tmp_path / "runs").exists()


def test_the_peers_of_graphs_train() -> None:
    options = ("--eager", "--peers", "--iterations", "1", "--warmup", "1", "--only", "gpt-1.3b/dtensor-tp2-sp")
    row = output("graphs.py", *options).splitlines()[-1].split()
    assert row[:2] == ["gpt-1.3b", "dtensor-tp2-sp"]
    assert float(row[2]) > 0


def test_a_model_that_no_study_has_trained_comes_from_its_configuration() -> None:
    from wirecost.study.loading import load_study

    study = load_study(str(BENCHMARKS / "data" / "llama-1b.yaml"))
    (workload,) = study.models
    assert (workload.name, workload.layers, workload.key_value_heads) == ("llama-1b", 22, 4)
    assert len(study.model_experiments()) == 15
