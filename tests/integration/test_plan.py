"""`wirecost plan` as a whole process, and plans that it measures on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import wirecost_here
from support.planning import answered, small_model
from wirecost.errors import UnsupportedError
from wirecost.planner.measure import measure, study_of
from wirecost.spec import Device
from wirecost.study.result import read_result

JOB = ("plan", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "16", "-B", "64")
ONE_HOST = "{gpu: A100-PCIe-40GB, gpus_per_node: 2, nodes: 1, intra_node: pcie4, inter_node: tcp-1g}"


def wirecost(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wirecost", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_json_has_the_plans_and_what_can_be_said_of_them() -> None:
    run = wirecost_here(*JOB, "--format", "json", "--explain", "1", "2")
    assert run.returncode == 0, run.stderr
    data = json.loads(run.stdout)
    assert len(data["plans"]) == 10
    assert data["fitting"] <= data["legal"]
    first = data["plans"][0]
    assert first["iteration_s"] == min(plan["iteration_s"] for plan in data["plans"])
    assert sum(first["parts_s"].values()) == pytest.approx(first["iteration_s"], rel=1e-6)
    assert sum(first["memory_parts_bytes"].values()) == pytest.approx(first["memory_bytes"], rel=1e-6)
    assert data["explanation"]["ratio_low"] < data["explanation"]["ratio"] < data["explanation"]["ratio_high"]
    assert {case["case"] for case in data["robustness"]} == {
        "bandwidth -20 %", "bandwidth +20 %", "compute -20 %", "compute +20 %",
    }  # fmt: skip


def test_predict_gives_the_same_numbers_for_a_plan_of_the_list() -> None:
    plan = json.loads(wirecost_here(*JOB, "--format", "json").stdout)["plans"][0]
    options = [
        "--tp",
        str(plan["tp"]),
        "--pp",
        str(plan["pp"]),
        "--vpp",
        str(plan["vpp"]),
        "--cp",
        str(plan["cp"]),
    ]
    options += ["--micro-batch", str(plan["micro_batch"]), "--recompute", plan["recompute"]]
    options += ["--data-parallel", f"zero{plan['zero']}" if plan["zero"] else "ddp"]
    options += ["--sharding-group", plan["sharding_group"], "--stack", plan["stack"]]
    options += ["--sequence-parallel"] if plan["sequence_parallel"] else []
    run = wirecost_here("predict", *JOB[1:], *options, "--format", "json")
    assert run.returncode == 0, run.stderr
    predicted = json.loads(run.stdout)
    assert predicted["prediction"]["iteration_s"] == pytest.approx(plan["iteration_s"], rel=1e-9)
    assert predicted["details"]["memory_bytes"]["total"] == pytest.approx(plan["memory_bytes"], rel=1e-6)


def test_a_prediction_that_does_not_fit_points_to_the_search() -> None:
    run = wirecost_here("predict", "llama-3-70b", "--cluster", "dgx-h100", "--gpus", "16", "--tp", "2")
    assert "does not fit" in run.stdout
    assert "`wirecost plan` finds the plans that fit" in run.stdout


def test_where_nothing_fits_the_exit_code_says_so() -> None:
    run = wirecost("plan", "llama-3-405b", "--cluster", "dgx-h100", "--gpus", "8", "-B", "8")
    assert run.returncode == 1
    assert "too much" in run.stdout
    assert "It would on" in run.stdout


def test_plans_are_measured_and_held_against_their_predictions(tmp_path: Path) -> None:
    result = answered(small_model(layers=2), ONE_HOST, 2, 4, "pp=1", "cp=1", "mb=1", stacks=("engine-cuda",))
    measured = measure(result, 2, tmp_path / "out")
    assert measured.measured
    for each in measured.measured:
        assert each.status == "done"
        assert each.measured_s is not None and each.measured_s > 0
        stored = next((tmp_path / "out" / f"plan-{each.place + 1}" / "experiments").glob("[!.]*"))
        breakdown = read_result(stored).breakdown
        assert breakdown is not None
        spread = breakdown.iteration_ns()
        assert spread is not None and spread.median / 1e9 == each.measured_s
    assert len(measured.measured) + measured.left <= 2
    assert measured.best is not None
    assert any("this machine's CPUs" in line for line in measured.lines())


def test_a_plan_becomes_an_experiment_with_its_own_batches_and_hosts() -> None:
    result = answered(small_model(), "{gpu: A100-PCIe-40GB, gpus_per_node: 2, nodes: 2, intra_node: pcie4, "
                      "inter_node: tcp-1g, nics_per_node: 2}", 4, 8, "pp=2", "mb=2", stacks=("engine-cuda",))  # fmt: skip
    experiment = study_of(result, 0, Device.CPU).model_experiments()[0]
    assert (experiment.hosts, experiment.ranks_per_host) == (2, 2)
    assert (experiment.global_batch, experiment.micro_batch) == (8, 2)
    assert experiment.plan.pipeline_parallel == 2
    assert experiment.network.emulate is not None and experiment.network.emulate.rate == 2e9


def test_more_ranks_than_the_machine_has_are_refused(tmp_path: Path) -> None:
    result = answered("gpt-tiny", "dgx-h100", 128, 128, stacks=("generic",))
    with pytest.raises(UnsupportedError, match="run the job on the cluster"):
        measure(result, 1, tmp_path)


def test_a_command_of_the_users_own_trains_the_plans(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "support" / "jobs" / "ddp.py"
    out = tmp_path / "out"
    run = wirecost(
        "plan", "gpt-tiny", "--cluster", "{gpu: A10, gpus_per_node: 2, nodes: 1, intra_node: pcie4, "
        "inter_node: tcp-1g}", "--gpus", "2", "-B", "8", "--tp", "1", "--pp", "1", "--measure", "1", "--out", str(out),
        "--command", f"{sys.executable} {script} --width 64 --layers {{tp}} --accumulate {{pp}}", "--format", "json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (plan,) = json.loads(run.stdout)["plans"]
    assert plan["status"] == "done", next(out.rglob("rank-0.log")).read_text()
    assert plan["measured_s"] > 0
