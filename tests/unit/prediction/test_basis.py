"""What a prediction rests on is printed, and plans that were never compared with measurements are less certain."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from support.model import made
from wirecost.api.predictions import predict as api_predict
from wirecost.cli import application
from wirecost.costmodel.setup import Setup
from wirecost.prediction.basis import basis_line, basis_of, unmeasured_strategies
from wirecost.prediction.predict import predict
from wirecost.spec import Plan, Provenance, validate

BOTH = ["predict", "gpt-2-medium", "--cluster", "8xrtx4090-10g", "--gpus", "16"]


def width(setup: Setup) -> float:
    interval = predict(setup).breakdown.interval
    assert interval is not None
    return math.log(interval.high_ns / interval.low_ns) / 2


def test_each_part_states_its_provenance() -> None:
    setup = made("mpt-7b", "dgx-h100", gpus=16, stack="fsdp-flash", micro_batch=4)
    basis = basis_of(setup)
    assert [each.part for each in basis] == ["gpu", "intra_node", "inter_node", "stack", "plan"]
    assert {each.provenance for each in basis} == {Provenance.MEASURED}
    assert all(each.detail for each in basis)
    inside = basis_of(made("mpt-7b", "dgx-h100", gpus=8, stack="fsdp-flash", micro_batch=4))
    assert "inter_node" not in {each.part for each in inside}  # a network that isn't crossed
    alone = basis_of(made("mpt-7b", "dgx-h100", gpus=1, stack="fsdp-flash", micro_batch=1))
    assert [each.part for each in alone] == ["gpu", "stack", "plan"]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({}, []),
        ({"tensor_parallel": 8, "pipeline_parallel": 4, "data_parallel": "zero1"}, []),
        ({"context_parallel": 4}, []),
        ({"context_parallel": 8}, ["context_parallel 8"]),
        ({"context_parallel": 2, "context_communication": "a2a"}, ["context_communication a2a"]),
        ({"expert_parallel": 8, "lora_rank": 4}, []),
        ({"tensor_parallel": 2, "sequence_parallel": True, "tensor_overlap": True}, ["tensor_overlap"]),
        ({"tensor_overlap": False}, []),
        ({"matrix_precision": "fp8-blockwise"}, ["matrix_precision fp8-blockwise"]),
        ({"matrix_precision": "mxfp8"}, []),
        ({"matrix_precision": "nvfp4"}, []),
        ({"data_parallel": "zero3", "sharding_group": "hpz"}, ["hpZ"]),
        ({"pipeline_parallel": 4, "pipeline_schedule": "zb-h1"}, ["pipeline_schedule zb-h1"]),
        ({"data_parallel": "zero3", "sharding_group": "node"}, []),
        ({"gradient_traffic": "int8"}, ["gradient_traffic int8"]),
    ],
)
def test_strategies_that_were_never_measured(keys: dict[str, object], names: list[str]) -> None:
    assert unmeasured_strategies(validate(Plan, {"name": "p", **keys}, "p")) == names


def test_a_plan_that_was_never_measured_has_a_wider_interval() -> None:
    plain = made("mpt-7b", "dgx-h100", gpus=16, stack="fsdp-flash", micro_batch=1)
    ring = made("mpt-7b", "dgx-h100", gpus=16, stack="fsdp-flash", micro_batch=1, context_parallel=8)
    assert width(ring) > width(plain) + 0.1
    codes = {d.code for d in predict(ring).breakdown.diagnostics}
    assert codes - {d.code for d in predict(plain).breakdown.diagnostics} == {"uncalibrated_plan"}
    assert basis_of(ring)[-1].provenance is Provenance.JUDGEMENT


def test_the_command_prints_one_line_and_json_has_it() -> None:
    result = CliRunner().invoke(application(), BOTH)
    lines = [line for line in result.output.splitlines() if line.startswith("Provenance: ")]
    assert lines == [
        "Provenance: GPU RTX-4090 datasheet, link inside a node pcie4-no-p2p judgement, link between nodes tcp-10g "
        "measured, stack fsdp-flash measured, plan options measured."
    ]
    data = json.loads(CliRunner().invoke(application(), [*BOTH, "--format", "json"]).stdout)
    assert [each["provenance"] for each in data["prediction"]["basis"]] == [
        "datasheet", "judgement", "measured", "measured", "measured",
    ]  # fmt: skip
    view = api_predict("gpt-2-medium", cluster="8xrtx4090-10g", gpus=16)
    assert view.rows("basis") == data["prediction"]["basis"]
    assert basis_line(basis_of(view.prediction.setup)) == lines[0]
    sweep = CliRunner().invoke(application(), [*BOTH, "--sweep", "bandwidth=10Gb/s,20Gb/s"])
    assert lines[0] in sweep.output
