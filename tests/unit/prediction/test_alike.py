"""`predict`, `need` and `validate` refuse the same jobs and complete the others alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from wirecost.calibration.inputs.rows import iteration_row
from wirecost.cli import application
from wirecost.costmodel.setup import layout_of
from wirecost.prediction.job import JobOptions, setup_of
from wirecost.prediction.predict import predict
from wirecost.prediction.table_validation import validate_table

COLUMNS = (
    "id", "model", "gpu", "gpus_per_node", "n_gpus", "n_layers", "hidden", "heads", "ffn", "vocab", "seq",
    "framework", "tp", "pp", "vpp", "dp", "cp", "ep", "sharding", "seq_par", "act_recompute", "mbs", "gas", "gbs",
    "precision", "experts", "topk", "iter_s", "notes",
)  # fmt: skip
ROW = dict.fromkeys(COLUMNS, "") | {
    "id": "a", "model": "llama-3-8b", "gpu": "H100", "gpus_per_node": "8", "n_gpus": "16", "mbs": "1",
    "gbs": "64", "iter_s": "1",
}  # fmt: skip
JOB: JobOptions = {"cluster": "dgx-h100", "gpus": 16, "micro_batch": 1, "global_batch": 64}
DEGREES = {
    "tensor_parallel": "tp", "pipeline_parallel": "pp", "virtual_stages": "vpp", "context_parallel": "cp",
    "expert_parallel": "ep", "gpus": "n_gpus", "micro_batch": "mbs", "global_batch": "gbs",
}  # fmt: skip
"""Column of each option."""


def of_row(options: dict[str, int], **columns: str) -> dict[str, str]:
    """Returns the row that describes a job with these options. Degrees that aren't named are 1."""
    return {**ROW, "tp": "1", "pp": "1", **{DEGREES[key]: str(value) for key, value in options.items()}, **columns}


def by_command(command: str, model: str, options: dict[str, Any]) -> Result:
    job = {**JOB, **options}
    words = [f"--{key.replace('_', '-')}={value}" for key, value in job.items()]
    return CliRunner().invoke(application(), [command, model, *words])


def skipped(row: dict[str, str], folder: Path) -> list[str]:
    """Returns the reasons for which `validate` skips a row."""
    path = folder / "t.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    return [each["reason"] for each in validate_table(path).skipped]


IMPOSSIBLE: dict[str, tuple[str, dict[str, int], str]] = {
    "more tensor ranks than heads": ("gpt-2-medium", {"tensor_parallel": 32, "gpus": 32}, "does not divide the"),
    "tensor ranks that don't divide heads": ("gpt-2-xl", {"tensor_parallel": 2}, "25 heads"),
    "more stages than layers": ("llama-3-8b", {"pipeline_parallel": 64, "gpus": 64}, "64 pipeline chunks"),
    "more chunks than layers": ("llama-3-8b", {"pipeline_parallel": 8, "virtual_stages": 8}, "64 pipeline chunks"),
    "chunks without stages": ("llama-3-8b", {"virtual_stages": 2}, "virtual_stages: interleaving needs"),
    "micro-batches that don't interleave": (
        "llama-3-8b", {"pipeline_parallel": 4, "virtual_stages": 2, "global_batch": 24}, "multiple of pipeline_par",
    ),
    "sequences that don't divide": ("llama-3-8b", {"context_parallel": 3, "gpus": 24}, "context_parallel: 3"),
    "experts of a dense model": ("llama-3-8b", {"expert_parallel": 8}, "no mixture_of_experts"),
    "ranks that don't divide experts": ("mixtral-8x7b", {"expert_parallel": 16}, "does not divide 8 experts"),
    "experts on ranks that aren't there": (
        "qwen3-30b-a3b", {"expert_parallel": 32, "gpus": 16}, "does not divide the 16 ranks",
    ),
    "a batch that doesn't divide": ("llama-3-8b", {"global_batch": 60}, "global_batch: 60 does not divide"),
    "a batch for half a micro-batch": ("llama-3-8b", {"micro_batch": 3}, "global_batch: 64 does not divide"),
    "nodes that aren't full": ("llama-3-8b", {"gpus": 12}, "12 does not fill whole nodes of 8"),
    "GPUs that degrees don't divide": ("llama-3-8b", {"tensor_parallel": 32, "gpus": 16}, "does not divide"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_refused_by_all_three(name: str, tmp_path: Path) -> None:
    model, options, reason = IMPOSSIBLE[name]
    for command in ("predict", "need"):
        result = by_command(command, model, options)
        assert reason in str(result.exception), result.output
    (text,) = skipped(of_row(options, model=model), tmp_path)
    assert reason in text or "does not divide 16 GPUs" in text


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"gas": "8"}, "gbs 64 contradicts mbs 1 x gas 8 x dp 16, which is 128"),
        ({"dp": "4"}, "dp 4 contradicts 16 GPUs"),
        ({"model": "Some-8x7B", "n_layers": "32", "hidden": "4095"}, "experts and topk are empty"),
        ({"model": "Tiny-MoE", "n_layers": "32", "hidden": "4095"}, "experts and topk are empty"),
        ({"model": "Mamba-2.8B", "n_layers": "32", "hidden": "4096"}, "state-space layers"),
        ({"model": "Nemotron-H-8B"}, "state-space layers"),
        ({"notes": "with CPU offload"}, "names offload"),
        ({"sharding": "zero3 + optimizer offload"}, "names offload"),
        ({"notes": "QLoRA"}, "names QLoRA"),
    ],
)
def test_rows_that_say_more_than_options_can_are_refused(columns: dict, reason: str, tmp_path: Path) -> None:
    (text,) = skipped(of_row({}, **columns), tmp_path)
    assert reason in text


@pytest.mark.parametrize("name", ["Nemotron-H-8B", "mamba-2.8b", "Jamba-v0.1"])
def test_hybrids_are_refused_by_name_by_all_three(name: str, tmp_path: Path) -> None:
    for command in ("predict", "need"):
        assert "state-space layers" in str(by_command(command, name, {}).exception)
    assert "state-space layers" in skipped(of_row({}, model=name), tmp_path)[0]


@pytest.mark.parametrize("name", ["Nemotron-340B", "Nemotron-3-8B", "Llama-3.1-Nemotron-Nano-8B"])
def test_dense_models_of_like_names_are_no_hybrids(name: str, tmp_path: Path) -> None:
    assert not skipped(of_row({}, model=name, n_layers="32", hidden="4096"), tmp_path)


def test_no_offload_is_no_offload(tmp_path: Path) -> None:
    assert not skipped(of_row({}, notes="no offload"), tmp_path)


DEFAULTS: list[tuple[str, dict[str, int]]] = [
    ("llama-3-8b", {}),
    ("llama-3-8b", {"tensor_parallel": 2}),
    ("llama-3-8b", {"tensor_parallel": 2, "pipeline_parallel": 2}),
    ("llama-3-8b", {"context_parallel": 2}),
    ("mixtral-8x7b", {"expert_parallel": 8}),
    ("gpt-oss-20b", {"expert_parallel": 8, "tensor_parallel": 2}),
    ("deepseek-v2-lite", {}),
    ("gemma-2-9b", {"tensor_parallel": 4}),
    ("gpt-2-medium", {}),
]


@pytest.mark.parametrize(("model", "options"), DEFAULTS)
def test_what_nobody_says_is_assumed_alike(model: str, options: dict[str, int], tmp_path: Path) -> None:
    job: JobOptions = {**JOB, **options}  # type: ignore[typeddict-item]
    setup = setup_of(model, job)
    row = iteration_row(of_row(options, model=model), 1)
    assert row.key.stack == setup.stack.name
    assert row.key.precision.value == setup.plan.precision.value
    own, theirs = row.layout, layout_of(setup)
    for key in ("sequence_parallel", "recompute", "sharding", "bucketed", "trained", "virtual", "accumulation"):
        assert getattr(own, key) == getattr(theirs, key), key
    assert row.assumed["precision"] == setup.plan.precision
    if "expert_parallel" not in options:  # rows of experts are measured with equal loads
        path = tmp_path / "t.csv"
        columns = of_row(options, model=model)
        path.write_text(",".join(columns) + "\n" + ",".join(columns.values()) + "\n")
        (validated,) = validate_table(path).rows
        if setup.workload.mixture_of_experts is None:
            assert validated.predicted == pytest.approx(predict(setup).total_s, rel=1e-9)


@pytest.mark.parametrize(("model", "options"), DEFAULTS[:4])
def test_predict_need_and_validate_print_what_they_assume(
    model: str, options: dict[str, int], tmp_path: Path
) -> None:
    printed = []
    for command in ("predict", "need"):
        result = by_command(command, model, options)
        printed.append([line for line in result.output.splitlines() if line.startswith(("Assumed", "Provenance"))])
        assert len(printed[-1]) == 2
    assert printed[0] == printed[1]
    path = tmp_path / "t.csv"
    columns = of_row(options, model=model)
    path.write_text(",".join(columns) + "\n" + ",".join(columns.values()) + "\n")
    result = CliRunner().invoke(application(), ["validate", str(path)])
    (line,) = [line for line in result.output.splitlines() if line.startswith("Assumed")]
    plan = setup_of(model, {**JOB, **options}).plan  # type: ignore[typeddict-item]
    for words in (
        f"sharding {plan.data_parallel} (1)",
        f"act_recompute {plan.recompute} (1)",
        "precision bf16 (1)",
    ):
        assert words in line
    if options.get("tensor_parallel", 1) > 1:
        assert "seq_par yes (1)" in line
        assert "sequence parallel on" in printed[0][1]


def test_need_has_the_provenance_in_json_too() -> None:
    words = ["--cluster", "dgx-h100", "--gpus", "16", "--format", "json"]
    documents = [
        json.loads(CliRunner().invoke(application(), [command, "llama-3-8b", *words]).stdout)
        for command in ("predict", "need")
    ]
    assert documents[1]["basis"] == documents[0]["prediction"]["basis"]
    assert documents[1]["basis"][0]["part"] == "gpu"
