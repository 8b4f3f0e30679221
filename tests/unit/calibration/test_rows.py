"""Tables of measurements: what a row means, and why it can't be expressed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.model import ROW
from wirecost.calibration.inputs.columns import CannotExpressError
from wirecost.calibration.inputs.evaluate import predict_rows
from wirecost.calibration.inputs.row_machine import find_gpu
from wirecost.calibration.inputs.rows import iteration_row
from wirecost.calibration.inputs.table import read_table
from wirecost.errors import SpecError
from wirecost.prediction.table_validation import validate_table
from wirecost.spec import MatrixPrecision


def test_a_row_is_read_as_it_stands() -> None:
    one = iteration_row(ROW, 1)
    layout = one.layout
    assert (layout.tensor, layout.pipeline, layout.data, layout.micro_batch, layout.accumulation) == (
        2,
        2,
        4,
        2,
        4,
    )
    assert one.key.stack == "megatron-deepspeed"
    assert one.key.node_Bps == 1e11
    assert one.shape.parameters == pytest.approx(1.31e9, rel=0.02)
    assert one.assumed == {}


@given(st.sets(st.sampled_from([k for k in ROW if k not in ("n_layers", "hidden", "mbs", "gpu")])))
@settings(max_examples=80, deadline=None)
def test_any_other_column_may_be_empty(empty: set[str]) -> None:
    row = {**ROW, **{key: "" for key in empty}}
    predicted, _ = predict_rows([iteration_row(row, 1)])
    assert predicted[0] > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_layers": ""}, "n_layers is empty"),
        ({"hidden": ""}, "hidden is empty"),
        ({"gpu": "Abacus v4"}, "unknown gpu"),
        ({"gpu": ""}, "gpu is empty"),
        ({"tp": "three"}, "tp is not a number"),
        ({"tp": "-2"}, "can't be"),
        ({"n_gpus": "15"}, "does not divide"),
        ({"mbs": "", "gbs": ""}, "mbs and gbs are empty"),
        ({"hidden": "nan"}, "can't be"),
    ],
)
def test_what_cannot_be_expressed_says_why(change: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpressError, match=reason):
        iteration_row({**ROW, **change}, 1)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("A100-40GB-SXM", "A100-SXM-40GB"),
        ("a100-80gb-sxm", "A100-SXM-80GB"),
        ("B200 (180GB)", "B200-SXM-192GB"),
        ("NVIDIA MI300X", "MI300X"),
        ("V100-32GB", "V100-SXM2-32GB"),
    ],
)
def test_gpus_are_known_by_many_names(name: str, found: str) -> None:
    assert find_gpu(name).name == found


@pytest.mark.parametrize(
    ("framework", "gpu", "sharding", "stack"),
    [
        ("Megatron-LM", "A100", "none", "megatron-lm-2021"),
        ("Megatron-DeepSpeed", "A100", "zero1", "megatron-deepspeed"),
        ("Megatron-LM", "A100", "zero3", "deepspeed-zero3-2021"),
        ("Megatron-LM", "B200", "zero1", "megatron-core"),
        ("Composer+PyTorch FSDP (llm-foundry)", "H100", "fsdp_full(zero3)", "fsdp-flash"),
        ("torchtitan", "H100", "", "torchtitan"),
        ("something", "H100", "", "generic"),
    ],
)
def test_the_stack_follows_from_framework_and_gpu(framework: str, gpu: str, sharding: str, stack: str) -> None:
    assert iteration_row({**ROW, "framework": framework, "gpu": gpu, "sharding": sharding}, 1).key.stack == stack


def test_precisions_are_read_from_free_text() -> None:
    def precision(text: str, gpu: str = "B200", **more: str) -> MatrixPrecision:
        return iteration_row({**ROW, "gpu": gpu, "precision": text, **more}, 1).key.precision

    assert precision("MXFP8") is MatrixPrecision.FP8
    assert precision("NVFP4") is MatrixPrecision.FP4
    assert precision("amp_bf16/DEFAULT") is MatrixPrecision.BF16
    assert precision("fp16") is MatrixPrecision.FP16
    assert precision("bf16", framework="torchtitan", notes="compile + float8") is MatrixPrecision.FP8


def test_known_models_fill_what_a_row_leaves_open() -> None:
    row = {
        **ROW,
        "model": "Llama-3.1-70B",
        "n_layers": "12",
        "hidden": "8192",
        "heads": "",
        "ffn": "",
        "vocab": "",
        "seq": "",
        "tp": "8",
        "pp": "1",
        "dp": "2",
    }
    one = iteration_row(row, 1)
    assert (one.shape.heads, one.shape.key_value, one.shape.ffn, one.shape.mlp_matrices) == (64, 1024, 28672, 3)
    assert set(one.assumed) == {"heads", "ffn", "vocab", "seq"}


def test_an_open_micro_batch_is_chosen_and_said(tmp_path) -> None:
    table = tmp_path / "t.csv"
    row = {**ROW, "mbs": "", "gas": "", "gbs": "512", "framework": "Megatron-LM"}
    table.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    result = validate_table(table)
    assert result.rows[0].assumed["mbs"] in (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a,b\n1,2\n", "n_layers"),
        (b"n_layers,hidden,mbs\n\x00\n", "NUL"),
        (b"", "no table of measurements"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, content: bytes, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=words):
        read_table(path)


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_in_a_table_is_predicted_or_skipped(text: str) -> None:
    keys = ("gpu", "framework", "sharding", "precision", "inter_link", "model", "heads", "n_gpus", "seq", "vocab")
    answers: list[bool] = []
    for key in keys:
        try:
            answers.append(float(iteration_row({**ROW, key: text}, 1).layout.world) >= 1)
        except CannotExpressError as reason:
            answers.append(bool(str(reason)))
    assert answers == [True] * len(keys)
