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
    assert one.assumed == {"seq_par": "no"}


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
        ({"n_layers": "", "hidden": "", "model": ""}, "model names no workload preset"),
        ({"n_layers": "", "hidden": "", "model": "DeepSek V3"}, "did you mean 'deepseek-v3'"),
        ({"n_layers": "", "hidden": "", "model": "Nemotron_3_Nano"}, "state-space layers"),
        ({"notes": "QLoRA"}, "names QLoRA"),
    ],
)
def test_what_cannot_be_expressed_says_why(change: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpressError, match=reason):
        iteration_row({**ROW, **change}, 1)


@pytest.mark.parametrize("model", ["DeepSeekV3", "deepseek-v3", "DeepSeek V3"])
def test_a_row_with_nothing_but_a_models_name_means_its_preset(model: str) -> None:
    row = {
        **ROW,
        "model": model,
        "n_layers": "",
        "hidden": "",
        "heads": "",
        "ffn": "",
        "vocab": "",
        "tp": "1",
        "pp": "4",
    }
    one = iteration_row(row, 1)
    assert one.assumed["model"] == "deepseek-v3"
    assert one.shape.parameters == pytest.approx(671e9, rel=0.01)


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

    assert precision("MXFP8") is MatrixPrecision.MXFP8
    assert precision("NVFP4") is MatrixPrecision.NVFP4
    assert precision("FP4") is MatrixPrecision.FP4
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
        "gas": "8",
    }
    one = iteration_row(row, 1)
    assert (one.shape.heads, one.shape.key_value, one.shape.ffn, one.shape.mlp_matrices) == (64, 1024, 28672, 3)
    assert set(one.assumed) == {"heads", "ffn", "vocab", "seq", "seq_par"}


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


LLAMA = {
    "model": "Llama-2-7B",
    "hidden": "4096",
    "heads": "32",
    "ffn": "11008",
    "vocab": "32000",
    "n_layers": "32",
}


@pytest.mark.parametrize(
    ("change", "stack"),
    [
        ({"framework": "Megatron-Core 0.6"}, "megatron-core"),
        ({"framework": "Megatron-LM", **LLAMA}, "megatron-core"),
        ({"framework": "Megatron-LM (2021)"}, "megatron-lm-2021"),
        ({"framework": "Megatron-LM"}, "megatron-lm-2021"),
        ({"framework": "Megatron-LM", "gpu": "H100-80GB-SXM"}, "megatron-core"),
        ({"framework": "Megatron-DeepSpeed", "gpu": "MI250X"}, "megatron-deepspeed-flash"),
        ({"framework": "Megatron-DeepSpeed (Habana)", "gpu": "Gaudi2"}, "habana"),
        ({"framework": "NeMo Megatron 22.09"}, "nemo-2022"),
        ({"framework": "NeMo 24.07"}, "megatron-core"),
        ({"framework": "LiBai (OneFlow)"}, "oneflow"),
        ({"framework": "PaddleNLP 2.2"}, "paddle"),
        ({"framework": "PaddleNLP", **LLAMA}, "paddle-flash"),
        ({"framework": "TensorFlow2 Horovod"}, "tensorflow"),
        ({"framework": "nanotron", **LLAMA}, "nanotron"),
        ({"framework": "PyTorch FSDP2", **LLAMA}, "torchtitan"),
        ({"framework": "something else", **LLAMA}, "generic"),
    ],
)
def test_the_stack_is_what_the_row_says(change: dict[str, str], stack: str) -> None:
    assert iteration_row({**ROW, **change}, 1).key.stack == stack


MOE = {
    "model": "Some-MoE", "experts": "64", "topk": "4", "moe_ffn": "1024", "shared_experts": "1", "moe_layers": "20",
}  # fmt: skip


def test_columns_of_experts_describe_the_model() -> None:
    shape = iteration_row({**ROW, **MOE}, 1).shape
    assert (shape.experts, shape.top_k, shape.shared_experts, shape.ffn, shape.dense_ffn) == (64, 4, 1, 1024, 8192)
    assert shape.moe_share == pytest.approx(20 / 24)
    with pytest.raises(CannotExpressError, match="topk is empty"):
        iteration_row({**ROW, **MOE, "topk": ""}, 1)
    with pytest.raises(CannotExpressError, match="experts is"):
        iteration_row({**ROW, **MOE, "experts": "-3"}, 1)


def test_only_the_masked_tokens_of_bert_reach_the_vocabulary_but_in_megatron_all() -> None:
    row = {**ROW, "model": "BERT-Large"}
    assert iteration_row({**row, "framework": "PyTorch DDP"}, 1).shape.head_share == pytest.approx(0.16)
    bert = iteration_row({**row, "framework": "Megatron-LM (2021)"}, 1).shape
    assert (bert.head_share, bert.causal) == (1.0, 0.0)


def test_nodes_of_eight_mi250x_count_its_dies() -> None:
    row = {**ROW, "gpu": "MI250X", "framework": "Megatron-DeepSpeed"}
    assert iteration_row(row, 1).key.gpu == "MI250X-GCD"
    assert iteration_row({**row, "gpus_per_node": "4"}, 1).key.gpu == "MI250X"


def test_cuda_graphs_in_a_rows_notes_shorten_its_launches() -> None:
    small = {**ROW, "hidden": "512", "heads": "8", "ffn": "2048", "mbs": "1", "gas": "8"}
    plain, graphs = iteration_row(small, 1), iteration_row({**small, "notes": "tuned (CUDA graphs)"}, 1)
    assert graphs.key.cuda_graphs
    assert predict_rows([graphs])[0][0] < predict_rows([plain])[0][0]
