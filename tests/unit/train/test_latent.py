"""Latent attention against one head at a time, and the parameters that are counted."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from support.parity import LLAMA
from wirecost.spec import LatentAttention, Plan, Workload
from wirecost.spec.parameters import count
from wirecost.train.checks import check_combination, check_workload
from wirecost.train.models import build_model
from wirecost.train.models.blocks import rotate
from wirecost.train.models.latent import MultiHeadLatentAttention
from wirecost.train.models.llama import Rotary

SETTINGS: list[dict[str, Any]] = [
    {"kv_rank": 12, "q_rank": 20, "nope_head_dim": 6, "rope_head_dim": 4, "value_head_dim": 8},
    {"kv_rank": 5, "nope_head_dim": 3, "rope_head_dim": 2, "value_head_dim": 4},
]


def workload(settings: dict[str, Any]) -> Workload:
    return Workload.model_validate(
        {**LLAMA.model_dump(), "kv_heads": None, "name": "latent", "latent_attention": settings}
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_latent_attention_computes_what_single_heads_do(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    latent = LatentAttention(**settings)
    heads, hidden, length = 4, 32, 7
    attention = MultiHeadLatentAttention(hidden, heads, latent)
    x = torch.randn(2, length, hidden)
    angles = Rotary(length, latent.rope_head_dim)(length, None)
    queries = x if attention.q_down is None else attention.q_norm(attention.q_down(x))  # type: ignore[misc]
    low, shared = attention.kv_down(x).split([latent.kv_rank, latent.rope_head_dim], -1)
    low, shared = attention.kv_norm(low), rotate(shared, *angles)
    nope, size = latent.nope_head_dim, latent.nope_head_dim + latent.rope_head_dim
    wide = nope + latent.value_head_dim
    mask = torch.full((length, length), -torch.inf).triu(1)
    outputs = []
    for head in range(heads):
        q = queries @ attention.q.weight[head * size : (head + 1) * size].t()
        kv = low @ attention.kv.weight[head * wide : (head + 1) * wide].t()
        scores = q[..., :nope] @ kv[..., :nope].mT + rotate(q[..., nope:], *angles) @ shared.mT
        outputs.append((scores / size**0.5 + mask).softmax(-1) @ kv[..., nope:])
    torch.testing.assert_close(attention(x, angles), attention.out(torch.cat(outputs, -1)))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_parameters_are_those_that_are_counted(settings: dict[str, Any]) -> None:
    model = build_model(workload(settings))
    assert sum(p.numel() for p in model.parameters()) == count(workload(settings)).total


def test_what_latent_attention_does_not_go_with_is_refused() -> None:
    latent = workload(SETTINGS[0])
    assert "latent_attention hasn't" in str(check_combination(latent, Plan(name="cp2", context_parallel=2)))
    odd = workload({**SETTINGS[0], "rope_head_dim": 3})
    assert "an even latent_attention.rope_head_dim, not 3" in str(check_workload(odd))
    # Only predictions read the number of heads for keys and values.
    grouped = latent.model_copy(update={"kv_heads": 1})
    assert check_workload(grouped) is None
    assert check_combination(grouped, Plan(name="tp2", tensor_parallel=2)) is None
    other = Workload.model_validate(
        {"name": "gpt", "layers": 1, "hidden": 32, "heads": 4, "vocab_size": 256, "sequence_length": 16,
         "latent_attention": SETTINGS[0]}
    )  # fmt: skip
    assert "latent_attention can be trained in a Llama only" in str(check_workload(other))
