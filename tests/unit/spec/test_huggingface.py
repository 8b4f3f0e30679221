"""Workloads from Hugging Face configurations: the published sizes, and refusals of what can't be described."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import further_models, published_models
from support.small_configurations import check_windows
from wirecost.errors import SpecError
from wirecost.prediction.job import JobOptions, setup_of
from wirecost.prediction.predict import predict
from wirecost.spec import Study, Workload, load_spec, parse_yaml, validate
from wirecost.spec.huggingface import REFUSED, TYPES, imported
from wirecost.spec.parameters import count

CONFIGURATIONS = published_models.CONFIGURATIONS | further_models.CONFIGURATIONS
COUNTED = published_models.COUNTED | further_models.COUNTED
PUBLISHED = published_models.PUBLISHED | further_models.PUBLISHED

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


def write(folder: Path, data: object, name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_published_configurations_have_the_published_parameters(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, CONFIGURATIONS[name])
    workload = validate(Workload, imported(str(path)), "w")
    assert workload.name == name
    # Corrections of a router's scores are no parameters that a count of dimensions has.
    assert count(workload).total == pytest.approx({**COUNTED, **PUBLISHED}[name], rel=1e-7)


def test_every_model_type_has_a_published_case() -> None:
    assert {data["model_type"] for data in CONFIGURATIONS.values()} == set(TYPES)
    assert set(COUNTED) | set(PUBLISHED) == set(CONFIGURATIONS)
    assert not set(REFUSED) & set(TYPES)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_published_configurations_are_predicted(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, CONFIGURATIONS[name])
    breakdown = predict(setup_of(str(path), {"cluster": "dgx-h100", "gpus": 64, "global_batch": 64})).breakdown
    assert breakdown.iterations[0].parts.window_ns > 0
    assert breakdown.interval is not None


@pytest.mark.parametrize(
    ("name", "window", "windowed", "layers"),
    [
        ("mistral-7b", 4096, 32, 32),
        ("gpt-oss-20b", 128, 12, 24),
        ("gemma-2-9b", 4096, 21, 42),
        ("gemma-3-1b", 512, 22, 26),
        ("modernbert-base", 128, 14, 22),
        ("llama-3.1-8b", 0, 0, 32),
    ],
)
def test_windows_are_read_with_the_layers_that_have_them(
    name: str, window: int, windowed: int, layers: int, tmp_path: Path
) -> None:
    workload = validate(Workload, imported(str(write(tmp_path / name, CONFIGURATIONS[name]))), "w")
    check_windows(workload, window, windowed, layers)


@pytest.mark.parametrize(("name", "modules"), [("deepseek-v3", 1), ("kimi-k2", 0), ("deepseek-v2-lite", 0)])
def test_modules_of_multi_token_prediction_are_read_and_predicted(name: str, modules: int, tmp_path: Path) -> None:
    path = write(tmp_path / name, CONFIGURATIONS[name])
    setup = setup_of(str(path), {"cluster": "dgx-h100", "gpus": 64})
    assert setup.workload.multi_token_prediction == modules
    codes = {d.code for d in predict(setup).breakdown.diagnostics}
    assert ("uncalibrated_model" in codes) == bool(modules)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-oss-20b", "attention sinks"),
        ("gemma-2-9b", "soft caps"),
        ("command-r", "attention and MLP of a layer read the same input"),
        ("falcon-7b", "attention and MLP of a layer read the same input"),
        ("bloom-176b", "ALiBi"),
        ("llama-4-maverick", "24 of 48 layers have experts"),
        ("deberta-v3-base", "disentangled attention"),
        ("electra-small", "embeddings are 128 wide"),
        ("granite-3.0-8b", "scalar factors"),
    ],
)
def test_what_changes_the_numbers_and_is_not_in_the_formulas_is_named(
    name: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, CONFIGURATIONS[name])
    job: JobOptions = {"cluster": "dgx-h100", "gpus": 64, "sequence_length": 8192}
    texts = [
        d.message
        for d in predict(setup_of(str(path), job)).breakdown.diagnostics
        if d.code == "model_approximated"
    ]
    assert any(message in text for text in texts), texts


@pytest.mark.parametrize("name", ["llama-2-7b", "qwen2-7b", "mixtral-8x7b", "opt-125m", "bert-large", "t5-large"])
def test_what_the_formulas_have_is_no_approximation(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, CONFIGURATIONS[name])
    breakdown = predict(setup_of(str(path), {"cluster": "dgx-h100", "gpus": 64})).breakdown
    assert "model_approximated" not in {d.code for d in breakdown.diagnostics}


def test_a_window_that_no_sequence_leaves_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "m", CONFIGURATIONS["mistral-7b"])
    job: JobOptions = {"cluster": "dgx-h100", "gpus": 64, "sequence_length": 4096}
    breakdown = predict(setup_of(str(path), job)).breakdown
    assert "model_approximated" not in {d.code for d in breakdown.diagnostics}


def test_only_layers_with_experts_have_them(tmp_path: Path) -> None:
    workload = load_spec("workload", str(write(tmp_path / "m", CONFIGURATIONS["llama-4-maverick"])))
    assert workload.mixture_of_experts.moe_layers == 24
    parts = count(workload)
    expert = 3 * 5120 * 8192
    assert parts.experts_of_layer == 128 * expert  # of a layer that has them
    assert parts.layer == pytest.approx(129 * expert, rel=0.02)
    dense = 3 * 5120 * 16384
    assert parts.dense_difference == dense - 129 * expert - 128 * 5120  # the router is of layers with experts
    assert parts.other - 5120 - parts.embedding == 24 * parts.dense_difference


NESTED: dict[str, tuple[dict[str, Any], int]] = {
    # Text parts leave out values that are defaults of their class.
    "gemma-3-4b": (
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            "vision_config": {"hidden_size": 1152},
        },
        3_880_263_168,
    ),
    "llava-1.5-7b": (
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
            "vision_config": {},
        },
        6_738_939_904,
    ),
    "llama-4-scout": (
        {"model_type": "llama4", "text_config": CONFIGURATIONS["llama-4-scout"], "vision_config": {}},
        107_769_861_120,
    ),
    "qwen2.5-vl-7b": (
        {**CONFIGURATIONS["qwen2-7b"], "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}},
        7_615_616_512,
    ),
    "internvl": ({"model_type": "internvl_chat", "llm_config": CONFIGURATIONS["internlm2-7b"]}, 7_737_708_544),
}


@pytest.mark.parametrize("name", NESTED)
def test_the_text_part_of_a_multimodal_model_is_read_and_named(name: str, tmp_path: Path) -> None:
    data, parameters = NESTED[name]
    workload = load_spec("workload", str(write(tmp_path / name, data)))
    assert count(workload).total == parameters
    assert f"only the text part of {data['model_type']} is counted" in workload.approximations[-1]


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_no_workload_describes_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"model_type '{kind}' can't be described: ..."):
        load_spec("workload", str(write(tmp_path, {**LLAMA, "model_type": kind})))


def in_cache(home: Path, commit: str, data: object, *, reference: str | None = "main") -> None:
    folder = home / "hub" / "models--org--Some-Model_1.5"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text(json.dumps(data))
    if reference is not None:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / reference).write_text(commit)


def test_models_of_the_local_cache_are_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    in_cache(tmp_path, "aaaa", LLAMA)
    in_cache(tmp_path, "bbbb", {**LLAMA, "num_hidden_layers": 2}, reference="v2")
    workload = load_spec("workload", "hf://org/Some-Model_1.5")
    assert (workload.name, workload.layers) == ("Some-Model_1.5", 32)
    for revision in ("v2", "bbbb"):
        assert load_spec("workload", f"hf://org/Some-Model_1.5@{revision}").layers == 2
    changed = imported({"config": "hf://org/Some-Model_1.5", "sequence_length": 512})
    assert changed is not None
    assert changed["sequence_length"] == 512
    (tmp_path / "hub" / "models--org--Some-Model_1.5" / "refs" / "main").unlink()
    os.utime(tmp_path / "hub" / "models--org--Some-Model_1.5" / "snapshots" / "aaaa" / "config.json", (0, 0))
    assert load_spec("workload", "hf://org/Some-Model_1.5").layers == 2


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "hf://org/none",
            "no config.json of this model in the local Hugging Face cache .*hf download org/none con",
        ),
        ("hf://org/none@v1", "hf download org/none config.json --revision v1"),
        ("hf://none", "should be hf://ORG/NAME or hf://ORG/NAME@REVISION"),
        ("hf://../../etc", "should be hf://ORG/NAME"),
        ("hf://org/..", "should be hf://ORG/NAME"),
        ("hf://org/a/b", "should be hf://ORG/NAME"),
        ("hf://org/name@../../x", "should be hf://ORG/NAME"),
        ("hf://" + "a" * 5000 + "/b", "should be hf://ORG/NAME"),
        ("hf://o\n/b", "should be hf://ORG/NAME"),
    ],
)
def test_models_that_are_not_in_the_cache(
    address: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(SpecError, match=message) as refusal:
        load_spec("workload", address)
    assert "\n" not in str(refusal.value)


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
            {"model_type": "perceptron"},
            "unknown model_type 'perceptron'; allowed: Yi, apertus, aquila, arcee, ",
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
        ({"attention_bias": 1}, "attention_bias: should be true or false, not 1"),
        ({"model_type": "llava", "text_config": [1]}, "text_config: should be a mapping, not [1]"),
        (
            {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": -1}},
            "text_config.vocab_size: should be a whole number",
        ),
        ({"model_type": "llava", "text_config": {"model_type": "mamba"}}, "model_type 'mamba' can't be described"),
        ({**CONFIGURATIONS["mpt-7b"], "attn_config": 1}, "attn_config: should be a mapping, not 1"),
        (
            {**CONFIGURATIONS["mpt-7b"], "expansion_ratio": 0.3},
            "expansion_ratio: 0.3 times d_model 4096 is no whole",
        ),
        ({**CONFIGURATIONS["qwen3-30b-a3b"], "decoder_sparse_step": 50}, "no layer has experts"),
        ({**CONFIGURATIONS["qwen-7b"], "intermediate_size": 3}, "intermediate_size: 3 should be even"),
        ({**CONFIGURATIONS["gpt-oss-20b"], "layer_types": "all"}, "layer_types: should be a list, not 'all'"),
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
        (b'{"model_type": "llama", "num_hidden_layers": NaN}', "should be a whole number"),
        (b'{"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]}', "state-space models"),
        (b'{"a": ' + b"[" * 200_000, "not readable as JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not readable as JSON"),
        (b" " * (17 << 20), "longer than 16 MiB"),
        (json.dumps({"model_type": "bert", **dict.fromkeys(map(str, range(20_000)))}).encode(), "has 20001 keys"),
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
    known = next(published for published in CONFIGURATIONS.values() if published["model_type"] == kind)
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(set(known) - {"model_type"})), values, max_size=3))
    path = write(tmp_path_factory.getbasetemp() / "fuzz", {**known, **changed})
    try:
        workload = load_spec("workload", str(path))
    except SpecError as refusal:
        assert "\n" not in str(refusal)
    else:
        assert count(workload).total > 0
