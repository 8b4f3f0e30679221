"""Mixtures of experts against a loop over tokens: scores, capacity, shared experts, padded groups, balance."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from support.parity import LLAMA
from wirecost.spec import Workload
from wirecost.spec.parameters import count
from wirecost.train.models import build_model
from wirecost.train.models.experts import (
    MixtureMLP,
    capacity,
    grouped_product,
    order_copies,
    padded_places,
    product_of_each,
)

SETTINGS: list[dict[str, Any]] = [
    {},
    {"normalised": False, "scaling": 2.5},
    {"scoring": "sigmoid"},
    {"shared_experts": 2},
    {"capacity_factor": 0.5},
    {"capacity_factor": 2.0, "scoring": "sigmoid", "normalised": False},
    {"routing": "balanced"},
]


def workload(**settings: Any) -> Workload:
    moe = {"experts": 4, "top_k": 2, "expert_ffn_hidden": 24, **settings}
    return Workload.model_validate({**LLAMA.model_dump(), "name": "moe", "mixture_of_experts": moe})


def expected(mlp: MixtureMLP, x: torch.Tensor) -> torch.Tensor:
    """Applies the mixture one token and one expert at a time."""
    moe, experts = mlp.moe, mlp.experts
    result = torch.zeros_like(x)
    taken = [0] * moe.experts
    for number, token in enumerate(x):
        logits = mlp.router.weight @ token
        scores = logits.softmax(0) if moe.scoring == "softmax" else logits.sigmoid()
        chosen = scores.argsort(descending=True)[: moe.top_k].tolist()
        if moe.routing == "balanced":
            chosen = [(number * moe.top_k + k) % moe.experts for k in range(moe.top_k)]
        total = sum(scores[e] for e in chosen) if moe.normalised else 1
        for expert in chosen:
            taken[expert] += 1
            if moe.capacity_factor is not None and taken[expert] > capacity(len(x), moe):
                continue
            inner = functional.silu(experts.gate[expert] @ token) * (experts.up[expert] @ token)
            result[number] += moe.scaling * scores[expert] / total * (experts.down[expert] @ inner)
        if mlp.shared is not None:
            result[number] += mlp.shared(token)
    return result


@pytest.mark.parametrize("moe", SETTINGS, ids=str)
def test_a_mixture_computes_what_a_loop_over_tokens_does(moe: dict[str, Any]) -> None:
    torch.manual_seed(0)
    mlp = MixtureMLP(workload(**moe))
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 8, 32, requires_grad=True)
    y, right = mlp(x), expected(mlp, x.flatten(0, 1)).view(2, 8, 32)
    torch.testing.assert_close(y, right, rtol=1e-4, atol=1e-5)
    own = torch.autograd.grad(y.square().sum(), [x, *mlp.parameters()])
    others = torch.autograd.grad(right.square().sum(), [x, *mlp.parameters()])
    assert own
    for gradient, exact in zip(own, others, strict=True):
        torch.testing.assert_close(gradient, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("moe", [*SETTINGS, {"dense_layers": 1, "shared_experts": 1}], ids=str)
def test_the_parameters_are_those_that_are_counted(moe: dict[str, Any]) -> None:
    model = build_model(workload(**moe))
    assert sum(p.numel() for p in model.parameters()) == count(workload(**moe)).total


def test_balanced_routing_gives_every_expert_equally_many_copies() -> None:
    moe = workload(routing="balanced").mixture_of_experts
    assert moe is not None
    chosen = (torch.arange(16) % 4).view(8, 2)
    assert order_copies(torch.ones(8, 2), chosen, moe).counts == [4] * 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_padded_groups_compute_what_single_products_do(counts: list[int]) -> None:
    torch.manual_seed(0)
    x, weights = torch.randn(sum(counts), 16), torch.randn(len(counts), 8, 16)
    places, padded = padded_places(counts, x.device)
    assert len(set(places.tolist())) == sum(counts)
    assert all(count and count % 8 == 0 for count in padded)
    rows = x.new_zeros(sum(padded), 16).index_copy(0, places, x)
    right = product_of_each(x, weights, counts)
    torch.testing.assert_close(product_of_each(rows, weights, padded)[places], right)
    grouped = grouped_product(rows.bfloat16(), weights.bfloat16(), padded)[places]
    torch.testing.assert_close(grouped.float(), right, rtol=2e-2, atol=2e-1)
