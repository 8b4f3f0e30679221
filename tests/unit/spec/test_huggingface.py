"""Workloads from Hugging Face configurations: the published sizes, and refusals of what can't be described."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirecost.errors import SpecError
from wirecost.spec import Study, Workload, load_spec, parse_yaml, validate
from wirecost.spec.huggingface import TYPES, imported
from wirecost.spec.parameters import count

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 500000.0,
}
DEEPSEEK = {
    "model_type": "deepseek",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "vocab_size": 102400,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
}
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V2 = {
    **DEEPSEEK,
    **LATENT,
    "model_type": "deepseek_v2",
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 160,
    "q_lora_rank": 1536,
    "topk_method": "group_limited_greedy",
    "n_group": 8,
    "topk_group": 3,
    "routed_scaling_factor": 16.0,
}
# The dimensions of published checkpoints and the parameters that they hold.
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "gpt2-medium": (
        {
            "model_type": "gpt2",
            "n_layer": 24,
            "n_embd": 1024,
            "n_head": 16,
            "n_ctx": 1024,
            "n_positions": 1024,
            "vocab_size": 50257,
            "activation_function": "gelu_new",
            "n_inner": None,
        },
        354_823_168,
    ),
    "pythia-12b": (
        {
            "model_type": "gpt_neox",
            "hidden_size": 5120,
            "intermediate_size": 20480,
            "num_hidden_layers": 36,
            "num_attention_heads": 40,
            "vocab_size": 50688,
            "max_position_embeddings": 2048,
            "hidden_act": "gelu",
            "tie_word_embeddings": False,
        },
        11_846_072_320,
    ),
    "llama-3-8b": (LLAMA, 8_030_261_248),
    "mistral-7b": (
        {**LLAMA, "model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768},
        7_241_732_096,
    ),
    "mixtral-8x7b": (
        {
            **LLAMA,
            "model_type": "mixtral",
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        46_702_792_704,
    ),
    "qwen2-7b": (
        {
            **LLAMA,
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
        7_615_616_512,
    ),
    "qwen3-8b": (
        {
            **LLAMA,
            "model_type": "qwen3",
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "head_dim": 128,
            "vocab_size": 151936,
            "attention_bias": False,
        },
        8_190_735_360,
    ),
    "qwen3-30b-a3b": (
        {
            **LLAMA,
            "model_type": "qwen3_moe",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 48,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 151936,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        30_532_122_624,
    ),
    "deepseek-moe-16b": (DEEPSEEK, 16_375_728_128),
    "deepseek-v2-lite": (
        {
            **DEEPSEEK,
            "model_type": "deepseek_v2",
            "num_hidden_layers": 27,
            **LATENT,
            "topk_method": "greedy",
            "n_group": 1,
            "topk_group": 1,
        },
        15_706_484_224,
    ),
    "deepseek-v2": (DEEPSEEK_V2, 235_741_434_880),
    "deepseek-v3": (
        {
            **DEEPSEEK_V2,
            "model_type": "deepseek_v3",
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "vocab_size": 129280,
            "topk_method": "noaux_tc",
            "topk_group": 4,
            "scoring_func": "sigmoid",
        },
        671_026_404_352,
    ),
    "bert-large-uncased": (
        {
            "model_type": "bert",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "hidden_act": "gelu",
            "type_vocab_size": 2,
            "position_embedding_type": "absolute",
        },
        336_226_108,
    ),
    "t5-large": (
        {
            "model_type": "t5",
            "d_model": 1024,
            "d_ff": 4096,
            "d_kv": 64,
            "num_heads": 16,
            "num_layers": 24,
            "n_positions": 512,
            "vocab_size": 32128,
            "relative_attention_num_buckets": 32,
            "is_encoder_decoder": True,
        },
        737_668_096,
    ),
    "t5-v1_1-large": (
        {
            "model_type": "t5",
            "d_model": 1024,
            "d_ff": 2816,
            "d_kv": 64,
            "num_heads": 16,
            "num_layers": 24,
            "num_decoder_layers": 24,
            "vocab_size": 32128,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        783_150_080,
    ),
}


def write(folder: Path, data: object, name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_have_the_published_parameters(name: str, tmp_path: Path) -> None:
    data, parameters = PUBLISHED[name]
    path = write(tmp_path / name, data)
    workload = validate(Workload, imported(str(path)), "w")
    assert workload.name == name
    assert count(workload).total == pytest.approx(parameters, rel=2e-4)


def test_every_model_type_has_a_published_case() -> None:
    assert {data["model_type"] for data, _ in PUBLISHED.values()} == set(TYPES)


def test_a_study_and_a_prediction_read_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "mine", LLAMA)
    text = f"""\
name: x
workloads: [{path}, {{config: {path}, name: short, sequence_length: 512}}]
networks: [loopback]
plans: [all-reduce]
scaling: [{{kind: strong, global_batch: 16}}]
"""
    first, second = validate(Study, parse_yaml(text, "s"), "s").models
    assert first == load_spec("workload", str(path))
    assert (first.name, first.sequence_length) == ("mine", 8192)
    assert second == first.model_copy(update={"name": "short", "sequence_length": 512})
    assert load_spec("workload", str(path), sequence_length=512).sequence_length == 512


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "rwkv"},
            "unknown model_type 'rwkv'; allowed: bert, deepseek, deepseek_v2, deepseek_v3, gpt2, ",
        ),
        ({"model_type": "lama"}, "unknown model_type 'lama' (did you mean 'llama'?)"),
        ({"model_type": None}, "model_type: is missing, so this isn't a Hugging Face model configuration"),
        ({"model_type": ["llama"]}, "model_type: is missing"),
        ({"hidden_size": None}, "hidden_size: is missing"),
        ({"hidden_size": "4096"}, "hidden_size: should be a whole number from 1 to 1000000000, not '4096'"),
        ({"hidden_size": 4096.0}, "hidden_size: should be a whole number"),
        ({"hidden_size": True}, "hidden_size: should be a whole number from 1 to 1000000000, not true"),
        ({"hidden_size": 10**30}, "hidden_size: should be a whole number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: should be a whole number"),
        ({"vocab_size": {"a\n": 1}}, "vocab_size: should be a whole number"),
        ({"hidden_act": "relu"}, "hidden_act: 'relu' can't be described; only 'silu' or 'swish'"),
        ({"attention_bias": 1}, "attention_bias: 1 can't be described; only false"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: should be true or false, not 'no'"),
        ({"num_attention_heads": 31}, "hidden 4096 does not divide over 31 heads"),
        ({"num_key_value_heads": 7}, "heads 32 must be a multiple of kv_heads 7"),
        ({**DEEPSEEK, "scoring_func": "noisy"}, "scoring_func: 'noisy' can't be described; only 'softmax' or"),
        ({**DEEPSEEK, "moe_layer_freq": 2}, "moe_layer_freq: 2 can't be described; only 1"),
        ({**DEEPSEEK, "routed_scaling_factor": "16"}, "routed_scaling_factor: should be a number from 0"),
        ({**DEEPSEEK, "first_k_dense_replace": -1}, "first_k_dense_replace: should be a whole number"),
        ({**DEEPSEEK, "n_routed_experts": 4}, "top_k 6 can't exceed the 4 experts"),
        (
            {**DEEPSEEK, "model_type": "deepseek_v2", "topk_method": "random"},
            "topk_method: 'random' can't be described; only 'greedy' or 'group_limited_greedy' or 'noaux_tc'",
        ),
        (
            {**DEEPSEEK_V2, "n_group": 7},
            "160 experts do not divide into 7 groups; nearest that do: 154 or 161",
        ),
        (
            {**DEEPSEEK_V2, "qk_rope_head_dim": None},
            "qk_rope_head_dim: is missing",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**LLAMA, **changes})
    with pytest.raises(SpecError) as refusal:
        load_spec("workload", str(path))
    assert message in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not readable as JSON"),
        (b"[1]", "expected keys with values, found list"),
        (b"\xff{}", "not readable as JSON"),
        (b'{"model_type": "llama", "model_type": "bert"}', "the key 'model_type' appears twice"),
        (b'{"hidden_size": NaN}', "NaN is not a number"),
        (b'{"a": ' + b"[" * 200_000, "not readable as JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not readable as JSON"),
        (b" " * (2 << 20), "longer than 1 MiB"),
    ],
)
def test_files_that_are_no_configuration(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as refusal:
        imported(str(path))
    assert "\n" not in str(refusal.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(ValueError, match="no such file"):
            imported({"config": str(path)})
    with pytest.raises(ValueError, match=r"is not a path|no such file"):
        imported("a\0b.json")
    with pytest.raises(ValueError, match="config: should be the path"):
        imported({"config": ["x"]})


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})


# A machine under load takes seconds for the first draw.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(sorted(TYPES)), data=st.data())
def test_whatever_stands_there_it_is_a_workload_or_one_line(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    known = next(published for published, _ in PUBLISHED.values() if published["model_type"] == kind)
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(set(known) - {"model_type"})), values, max_size=3))
    path = write(tmp_path_factory.getbasetemp() / "fuzz", {**known, **changed})
    try:
        workload = load_spec("workload", str(path))
    except SpecError as refusal:
        assert "\n" not in str(refusal)
    else:
        assert count(workload).total > 0
