"""The cost model's commands as a user types them, and the model against the reference tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import wirecost_here
from support.paths import SHARED

MEASURED = SHARED / "reference" / "measured"
needs_shared = pytest.mark.skipif(not MEASURED.is_dir(), reason="the reference data beside the checkout is absent")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "wirecost", *arguments], capture_output=True, text=True, timeout=120
    )


def test_predict_prints_the_breakdown() -> None:
    result = run("predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--recompute", "full")
    assert result.returncode == 0, result.stderr
    for words in (
        "comm fraction",
        "MFU",
        "tokens/s",
        "90% interval",
        "memory",
        "predicted",
        "largest micro-batch",
    ):
        assert words in result.stdout


def test_predict_as_json_is_a_breakdown() -> None:
    from wirecost.breakdown import Breakdown

    result = wirecost_here(
        "predict",
        "gpt-3-175b",
        "--cluster",
        "selene",
        "--gpus",
        "512",
        "--tp",
        "8",
        "--pp",
        "8",
        "-B",
        "512",
        "--format",
        "json",
    )
    data = json.loads(result.stdout)
    extra = data.pop("prediction")
    breakdown = Breakdown.model_validate(data)
    assert breakdown.iteration_times_ns()[0] == pytest.approx(extra["iteration_s"] * 1e9, abs=1)
    assert 0 < extra["mfu"] < 1


def test_a_sweep_is_a_table_json_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "s.svg"
    result = run(
        "predict",
        "llama-3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "64",
        "--sweep",
        "bandwidth=100Gb/s..800Gb/s",
        "--plot",
        str(picture),
        "--format",
        "json",
    )
    points = json.loads(result.stdout)["points"]
    assert [p["label"] for p in points] == ["100 Gb/s", "200 Gb/s", "400 Gb/s", "800 Gb/s"]
    fractions = [p["comm_fraction"] for p in points]
    assert fractions == sorted(fractions, reverse=True)
    assert picture.read_text().startswith("<svg")


def test_need_answers_how_much_bandwidth_zero3_needs() -> None:
    result = wirecost_here(
        "need",
        "llama-3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "64",
        "--data-parallel",
        "zero3",
        "--fraction",
        "0.2",
        "--format",
        "json",
    )
    answer = json.loads(result.stdout)
    assert 1e11 < answer["value"] < 1e13
    assert answer["comm_fraction"] <= 0.2
    impossible = wirecost_here(
        "need",
        "llama-3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "64",
        "--data-parallel",
        "zero3",
        "--fraction",
        "0.0001",
    )
    assert impossible.returncode == 1
    assert "No bandwidth" in impossible.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "llama-3-8", "--cluster", "dgx-h100"], "did you mean 'llama-3-8b'"),
        (["predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "12"], "whole nodes"),
        (["predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--bandwidth", "0 Gb/s"], "positive"),
        (["predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--bandwidth", "400"], "unit"),
        (["predict", "llama-3-8b", "--cluster", "dgx-h100", "--recompute", "ful"], "did you mean 'full'"),
        (["predict", "nowhere.yaml", "--cluster", "dgx-h100"], "no such file"),
        (["predict", "llama-3-8b", "--cluster", "dgx-h100", "--plot", "x.png"], "--sweep"),
        (["validate", "nowhere.csv"], "no such file"),
        (["validate", "nowhere", "--predictions", "said"], "nowhere: no such directory; --predictions"),
        (["need", "llama-3-8b", "--cluster", "dgx-h100", "--of", "speed"], "unknown quantity"),
        (["need", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--fraction", "7"], "comm fraction"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    result = wirecost_here(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr


def test_a_cluster_file_without_a_dimension_names_its_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gpu: H100-SXM-80GB\ngpus_per_node: 8\nintra_node: nvlink4\ninter_node: infiniband-ndr\n")
    result = wirecost_here("predict", "llama-3-8b", "--cluster", str(path))
    assert result.returncode == 2
    assert "nodes: is missing" in result.stderr


def test_a_cluster_file_without_several_keys_names_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gpu: {name: mine}\ngpus_per_node: 8\nintra_node: {name: l}\ninter_node: infiniband-ndr\n")
    result = run("predict", "llama-3-8b", "--cluster", str(path))
    assert result.returncode == 2
    keys = "gpu.memory_bytes, gpu.memory_bandwidth_Bps, gpu.peak_flops, nodes"
    assert result.stderr == f"wirecost: {path}: {keys}, intra_node.rate: are missing\n"


@needs_shared
@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("table", "target"),
    [
        ("vtrain_a100_single", 0.04),
        ("vtrain_a100_multi", 0.06),
        ("megatron_sc21", 0.04),
        ("korthikanti2022_tab5", 0.04),
        ("mosaicml_llm_foundry", 0.06),
    ],
)
def test_reference_tables_are_met(table: str, target: float) -> None:
    result = wirecost_here("validate", str(MEASURED / f"{table}.csv"), "--format", "json")
    answer = json.loads(result.stdout)
    errors = [abs(r["error"]) for r in answer["rows"]]
    assert sum(errors) / len(errors) <= target
    assert {"source", "rows", "mape", "bias", "max_ape"} <= set(answer["groups"][0])
    assert not answer["skipped"]


@needs_shared
@pytest.mark.needs_shared
def test_fractions_of_cluster_a_are_met_with_their_oom_cells() -> None:
    table = str(SHARED / "reference" / "comm_fraction_cluster_a.csv")
    answer = json.loads(wirecost_here("validate", table, "--testbed", "pinnacles-a", "--format", "json").stdout)
    errors = [abs(r["error"]) for r in answer["rows"] if r["error"] is not None]
    assert sum(errors) / len(errors) <= 0.02
    assert all((r["predicted"] is None) == (r["measured"] is None) for r in answer["rows"])


@needs_shared
@pytest.mark.needs_shared
def test_one_workload_and_one_node_rows_predict_the_other(tmp_path: Path) -> None:
    lines = (SHARED / "reference" / "comm_fraction_cluster_a.csv").read_text().splitlines()
    seen = tmp_path / "seen.csv"
    seen.write_text(
        "\n".join([lines[0], *(x for x in lines[1:] if x.startswith("T5") or x.split(",")[3] == "2")]) + "\n"
    )
    judged = tmp_path / "judged.csv"
    judged.write_text(
        "\n".join([lines[0], *(x for x in lines[1:] if x.startswith("GPT") and x.split(",")[3] != "2")]) + "\n"
    )
    options = ("--calibrate-on", str(seen), "--testbed", "pinnacles-a", "--format", "json")
    answer = json.loads(wirecost_here("validate", str(judged), *options).stdout)
    errors = [abs(r["error"]) for r in answer["rows"] if r["error"] is not None]
    assert sum(errors) / len(errors) <= 0.02


@needs_shared
@pytest.mark.needs_shared
def test_calibrate_reports_what_it_held_out() -> None:
    answer = json.loads(
        wirecost_here("calibrate", str(MEASURED / "megatron_sc21.csv"), "--folds", "3", "--format", "json").stdout
    )
    (fit,) = answer["fits"]
    assert fit["errors"]["fitted"] <= fit["errors"]["presets"] * 1.05
    assert fit["errors"]["held_out"] > 0
    assert fit["errors"]["how"] == "3 random folds"
    assert len([p for p in fit["properties"] if p["determined"]]) < fit["rows"]


@needs_shared
@pytest.mark.needs_shared
def test_a_table_of_fractions_is_of_no_cluster_that_nobody_named() -> None:
    table = str(SHARED / "reference" / "comm_fraction_cluster_a.csv")
    for command in ("validate", "calibrate"):
        result = wirecost_here(command, table)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1
        assert "--testbed" in result.stderr
    benchmark = str(SHARED / "reference" / "nccl_all_reduce_big_red_200.csv")
    refused = json.loads(wirecost_here("validate", benchmark, "--format", "json").stdout)
    assert not refused["rows"]
    assert {row["reason"] for row in refused["skipped"]} == {"gpu is empty; name it, or give --cluster"}
    answer = json.loads(
        wirecost_here("validate", benchmark, "--cluster", "big-red-200", "--format", "json").stdout
    )
    assert len(answer["rows"]) == 24
    assert answer["groups"][0]["mape"] < 0.1


def test_project_takes_a_breakdown_and_an_efficiency_or_a_cluster(tmp_path: Path) -> None:
    from support.results import STUDY, invented_breakdown
    from wirecost.spec import Study, parse_yaml, validate

    experiment = validate(Study, parse_yaml(STUDY, "s"), "s").model_experiments()[0]
    breakdown = invented_breakdown(experiment)
    path = tmp_path / "one-node.json"
    path.write_text(breakdown.model_dump_json())
    (half,) = json.loads(
        wirecost_here("project", str(path), "--gpus", "64", "--efficiency", "0.5", "--format", "json").stdout
    )
    time, fraction = breakdown.iteration_ns(), breakdown.comm_fraction()
    assert time is not None
    assert fraction is not None
    # Nothing overlaps: the communication's share takes twice as long, the rest stays.
    assert half["iteration_s"] == pytest.approx(time.median * 1e-9 * (1 + fraction.median))
    by_links = json.loads(
        wirecost_here("project", str(path), "--gpus", "64", "--cluster", "polaris", "--format", "json").stdout
    )
    assert 0 < by_links[0]["efficiency"] < 0.5
    for wrong in (("--gpus", "64"), ("--gpus", "1", "--efficiency", "1"), ("--gpus", "64", "--efficiency", "0")):
        assert wirecost_here("project", str(path), *wrong).returncode == 2
