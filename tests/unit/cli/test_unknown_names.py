"""Every message about an unknown name says how to give the data in its place."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from wirecost.cli import application
from wirecost.errors import SpecError
from wirecost.prediction.table_validation import validate_table

CLUSTER = "{{gpus_per_node: 8, nodes: 2, gpu: {gpu}, intra_node: {intra}, inter_node: {inter}}}"
PARTS = {"gpu": "A100", "intra": "nvlink3", "inter": "roce-100g"}


def cluster(**changes: str) -> list[str]:
    return ["--cluster", CLUSTER.format(**{**PARTS, **changes})]


KNOWN = ["--cluster", "dgx-h100"]
CASES = {
    "gpu": ["gpt-2-medium", *cluster(gpu="Z100")],
    "cluster": ["gpt-2-medium", "--cluster", "dgx-z100"],
    "link inside": ["gpt-2-medium", *cluster(intra="nvlunk")],
    "link between": ["gpt-2-medium", *cluster(inter="rocky")],
    "model": ["gpt-2-tremendous", *KNOWN],
    "stack": ["gpt-2-medium", *KNOWN, "--stack", "mygatron"],
    "plan": ["gpt-2-medium", *KNOWN, "--plan", "zero17"],
    "data parallelism": ["gpt-2-medium", *KNOWN, "--data-parallel", "zero17"],
    "sharding group": ["gpt-2-medium", *KNOWN, "--data-parallel", "zero3", "--sharding-group", "rack"],
    "context communication": ["gpt-2-medium", *KNOWN, "--cp", "2", "--context-communication", "post"],
    "precision": ["gpt-2-medium", *KNOWN, "--precision", "fp24"],
    "matrix precision": ["gpt-2-medium", *KNOWN, "--matrix-precision", "int8"],
    "precision of the GPU": ["gpt-2-medium", *KNOWN, "--matrix-precision", "nvfp4"],
    "schedule": ["gpt-2-medium", *KNOWN, "--pp", "2", "--pipeline-schedule", "zigzag"],
    "recomputation": ["gpt-2-medium", *KNOWN, "--recompute", "some"],
}


NOT_OF_PLAN = (
    "plan", "data parallelism", "sharding group", "context communication", "schedule", "recomputation",
)  # fmt: skip
"""What a search of plans chooses itself."""


@pytest.mark.parametrize(
    ("kind", "command"),
    [(kind, command) for kind in CASES for command in ("predict", "need", "plan")
     if command != "plan" or kind not in NOT_OF_PLAN],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_the_way_to_do_without(kind: str, command: str) -> None:
    result = CliRunner().invoke(application(), [command, *CASES[kind], "--gpus", "16"])
    assert isinstance(result.exception, SpecError), result.output
    message = str(result.exception)
    assert "\n" not in message
    assert "as in: wirecost predict" in message or "peak_flops: {nvfp4:" in message or "presets stack" in message


@pytest.mark.parametrize(
    ("column", "value"), [("gpu", "Z100"), ("model", "gpt-2-tremendous"), ("cluster", "dgx-z100"), ("stack", "x")]
)
def test_rows_of_tables_say_it_too(column: str, value: str, tmp_path) -> None:
    row = {"id": "a", "model": "gpt-2", "gpu": "A100", "n_gpus": "8", "mbs": "1", "gbs": "8", "iter_s": "1"}
    row |= {"n_layers": "", "hidden": ""}
    if column in ("cluster", "stack"):
        row = {"workload": "gpt-2", "cluster": "dgx-h100", "stack": "generic", "gpus": "8", "comm_fraction": "0.1"}
        row |= {"precision": "bf16", "micro_batch": "1", "global_batch": "8"}
    row[column] = value
    path = tmp_path / "t.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    (skipped,) = validate_table(path).skipped
    assert f"unknown {'workload' if column == 'model' else column} '{value}'" in skipped["reason"]
    assert "wirecost predict" in skipped["reason"]


def test_a_plan_in_place_of_a_name_is_predicted() -> None:
    words = shlex.split(
        "predict gpt-2-medium --cluster dgx-h100 --gpus 8 --plan '{tensor_parallel: 2, name: mine}'"
    )
    result = CliRunner().invoke(application(), words)
    assert result.exit_code == 0, result.output
    assert "tensor 2" in result.output
