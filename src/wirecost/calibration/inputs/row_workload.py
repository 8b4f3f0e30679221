"""The transformer that a row of published measurements means, from its dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number, whole
from wirecost.spec import Family, Workload
from wirecost.spec.huggingface.refused import refused_name
from wirecost.spec.parameters import count
from wirecost.spec.presets import named, names, preset_name, unknown_preset

GATED = (
    "llama",
    "mistral",
    "mixtral",
    "qwen",
    "deepseek",
    "gemma",
    "yi-",
    "internlm",
    "phi-3",
    "gpt-oss",
    "gpt oss",
    "kimi",
    "glm",
    "baichuan",
    "olmo",
    "smollm",
    "palm",
)
DEFAULT_SEQUENCE = 2048


def _preset_for(row: Mapping[str, str | None], layers: int, hidden: int) -> Workload | None:
    """Returns the workload preset that the row's model name and width mean; published runs often take fewer
    layers."""
    plain = re.sub(r"[^a-z0-9]+", "", (row.get("model") or "").lower())
    best: tuple[int, dict[str, Any]] | None = None
    for name in names("workload"):
        data = named("workload", name)
        parts = re.findall(r"[a-z]+|[0-9]+", name)
        if data["hidden"] != hidden or parts[0] not in plain:
            continue
        score = sum(len(part) for part in parts if part in plain) + 2 * (data["layers"] == layers)
        if best is None or score > best[0]:
            best = (score, data)
    if best is None:
        return None
    moe = best[1].get("mixture_of_experts")
    fewer = {}
    if moe:
        few = {"dense_layers": min(moe.get("dense_layers", 0), layers)}
        if moe.get("moe_layers"):
            few["moe_layers"] = min(moe["moe_layers"], layers)
        fewer = {"mixture_of_experts": {**moe, **few}}
    return Workload.model_validate({**best[1], **fewer})


def experts_of(row: Mapping[str, str | None], layers: int) -> dict[str, Any] | None:
    """Returns the row's mixture of experts; None where the row has no column of experts.

    Raises:
        CannotExpressError: for experts without the number that a token uses.
    """
    experts = whole(row, "experts", 0)
    if experts <= 1:
        return None
    top_k = whole(row, "topk", 0)
    shared = (row.get("shared_experts") or "").strip()
    if not top_k:
        raise CannotExpressError("topk is empty")
    return {
        "experts": experts,
        "top_k": top_k,
        "expert_ffn_hidden": whole(row, "moe_ffn", 0) or None,
        "shared_experts": 0 if shared in ("", "0") else whole(row, "shared_experts", 0),
        "dense_layers": max(layers - whole(row, "moe_layers", layers), 0),
        # Published throughputs of mixtures of experts are measured with equal loads.
        "routing": "balanced",
    }


MASKED = 0.16
"""Share of BERT's tokens that are predicted: 20 of 128 and 80 of 512 (arXiv:1810.04805, section 3.1: 15 %)."""


def head_share_of(row: Mapping[str, str | None], workload: Workload) -> float:
    """Returns the share of a row's tokens that reach the vocabulary layer: BERT's implementations gather the
    masked ones first, except Megatron's."""
    framework = (row.get("framework") or "").lower()
    return MASKED if workload.family is Family.BERT and "megatron" not in framework else 1.0


def refuse_unknown_parts(row: Mapping[str, str | None], preset: Workload | None) -> None:
    """Refuses rows of models and strategies for which there are no formulas, or whose columns don't describe them.

    Raises:
        CannotExpressError: with the reason.
    """
    model = (row.get("model") or "").strip()
    if (reason := refused_name(model)) is not None:
        raise CannotExpressError(reason)
    experts = re.search(r"moe(?![a-z])|\bmixture of experts\b|(?<![0-9])[0-9]{1,3}x[0-9.]+b\b", model.lower())
    described = whole(row, "experts", 0) > 1 or (preset is not None and preset.mixture_of_experts is not None)
    if experts and not described:
        raise CannotExpressError(
            f"{model} is a mixture of experts by its name, and the columns experts and topk are empty"
        )
    for column in ("framework", "sharding", "notes"):
        text = (row.get(column) or "").lower()
        said = re.search(r"(\b(?:no|without|w/o)[\s_-]+)?(?:\b[a-z]+[\s_-]+)?offload", text)
        if said is not None and said[1] is None:
            raise CannotExpressError(f"{column} names offload, for which there are no formulas")


def predicted_tokens_of(row: Mapping[str, str | None]) -> int:
    """Returns the modules of multi-token prediction that a row says it trains: one if its text names MTP, unless
    it says that it is left out ('w/o MTP')."""
    text = " ".join((row.get(column) or "").lower() for column in ("model", "framework", "notes", "precision"))
    said = re.search(r"(w/o|without|no)?[\s_-]*\b(?:mtp|multi-token prediction)\b", text)
    return int(said is not None and said[1] is None)


def _named_workload(row: Mapping[str, str | None], assumed: dict[str, Any]) -> Workload:
    """Returns the preset that a row without dimensions names, with the row's sequence length.

    Raises:
        CannotExpressError: if no preset has the name.
    """
    model = (row.get("model") or "").strip()
    if not model:
        raise CannotExpressError("n_layers is empty, and model names no workload preset")
    if (reason := refused_name(model)) is not None:
        raise CannotExpressError(reason)
    name = preset_name("workload", model)
    if name is None:
        raise CannotExpressError(f"n_layers is empty, and {unknown_preset('workload', model)}")
    data = named("workload", name)
    refuse_unknown_parts(row, Workload.model_validate(data))
    sequence = whole(row, "seq", 0)
    assumed["model"] = name
    if not sequence:
        assumed["seq"] = data["sequence_length"]
    data = {**data, "multi_token_prediction": predicted_tokens_of(row)}
    mixture = data.get("mixture_of_experts")
    # Published throughputs of mixtures of experts are measured with equal loads.
    balanced = {"mixture_of_experts": {**mixture, "routing": "balanced"}} if mixture else {}
    return Workload.model_validate({**data, "sequence_length": sequence or data["sequence_length"], **balanced})


def workload_of(row: Mapping[str, str | None], assumed: dict[str, Any]) -> Workload:
    """Returns the row's transformer. Empty columns come from a preset of the same dimensions, else from the usual
    rules. A row that has only the model's name means the preset of that name.

    Raises:
        CannotExpressError: with the reason, if the row can't be expressed.
    """
    layers, hidden = whole(row, "n_layers", 0), whole(row, "hidden", 0)
    if not layers and not hidden:
        return _named_workload(row, assumed)
    return _measured_workload(row, layers, hidden, assumed)


def _attention_of(preset: Workload, row: Mapping[str, str | None], layers: int) -> dict[str, Any]:
    """Returns the latent attention and the sliding window of the model that a row names, which columns don't
    describe."""
    data: dict[str, Any] = {}
    if preset.latent_attention is not None and whole(row, "heads", preset.heads) == preset.heads:
        data |= {"latent_attention": preset.latent_attention, "kv_heads": None}
    if preset.sliding_window is not None:
        full = round(preset.full_attention_layers * layers / preset.layers)
        data |= {"sliding_window": preset.sliding_window, "full_attention_layers": full}
    return data


def _measured_workload(
    row: Mapping[str, str | None], layers: int, hidden: int, assumed: dict[str, Any]
) -> Workload:
    """Returns the transformer of a row that has dimensions."""
    if not layers or not hidden:
        missing = "n_layers" if not layers else "hidden"
        raise CannotExpressError(f"{missing} is empty")
    preset = _preset_for(row, layers, hidden)
    refuse_unknown_parts(row, preset)
    model = (row.get("model") or "").lower()
    gated = any(part in model for part in GATED) or "titan" in (row.get("framework") or "").lower()
    if preset is not None:
        gated = preset.gated
    heads = whole(row, "heads", 0)
    if not heads:
        heads = preset.heads if preset else max(1, hidden // 128)
        assumed["heads"] = heads
    data: dict[str, Any] = {
        "name": "row",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": whole(row, "kv_heads", 0) or (preset.kv_heads if preset else None),
        "vocab_size": whole(row, "vocab", 0) or (preset.vocab_size if preset else 128256 if gated else 51200),
        "sequence_length": whole(row, "seq", 0) or (preset.sequence_length if preset else DEFAULT_SEQUENCE),
    }
    for column, key in (("vocab", "vocab_size"), ("seq", "sequence_length")):
        if not whole(row, column, 0):
            assumed[column] = data[key]
    ffn = whole(row, "ffn", 0)
    if "bert" in model:
        data["family"] = "bert"
    data["mixture_of_experts"] = experts_of(row, layers) or (preset.mixture_of_experts if preset else None)
    data["multi_token_prediction"] = predicted_tokens_of(row)
    if preset is not None:
        data["head_dim"] = preset.head_dim
        data.update(_attention_of(preset, row, layers))
    if preset is not None and preset.ffn_hidden and not ffn:
        ffn = preset.ffn_hidden
        assumed["ffn"] = ffn
    if not ffn and gated:
        ffn = round(hidden * 8 / 3 / 256) * 256  # arXiv:2002.05202: 2/3 of 4 h
        assumed["ffn"] = ffn
    data["ffn_hidden"] = ffn or None
    if hidden % heads and not data.get("head_dim"):
        data["head_dim"] = max(1, round(hidden / heads))
    if data["kv_heads"] and heads % data["kv_heads"]:
        data["kv_heads"] = None
    plain = {**data, "activation": "gelu"}
    rich = {
        **data,
        "activation": "swiglu",
        "norm": "rmsnorm",
        "positions": "rotary",
        "biases": False,
        "tied_embeddings": False,
    }
    choices = [Workload.model_validate(rich if gated else plain)]
    params_b = number(row, "params_b")
    if params_b and preset is None and data.get("mixture_of_experts") is None:
        # The published size tells which of the two usual layouts is meant.
        choices.append(Workload.model_validate(plain if gated else rich))
        choices.sort(key=lambda w: abs(count(w).total / 1e9 / params_b - 1) > 0.08)
    return choices[0]
