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
from wirecost.spec import MixtureOfExperts, Workload
from wirecost.spec.parameters import count
from wirecost.train.models import build_model
from wirecost.train.models.experts import MixtureMLP, capacity, slots_of
from wirecost.train.models.grouped import apply_grouped
from wirecost.train.models.slots import aligned_slots, capacity_slots, dropless_slots, move

SETTINGS: list[dict[str, Any]] = [
    {},
    {"normalised": False, "scaling": 2.5},
    {"scoring": "sigmoid"},
    {"shared_experts": 2},
    {"capacity_factor": 0.5},
    {"capacity_factor": 2.0, "scoring": "sigmoid", "normalised": False},
    {"routing": "balanced"},
    {"groups": 2, "top_k_groups": 1},
    {"groups": 2, "top_k_groups": 1, "scoring": "sigmoid"},
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
        if moe.groups > 1:
            parts = scores.detach().chunk(moe.groups)
            best = 1 if moe.scoring == "softmax" else 2
            better = max(range(moe.groups), key=lambda g: parts[g].sort().values[-best:].sum().item())
            first = better * len(parts[0])
            chosen = [first + e for e in parts[better].argsort(descending=True)[: moe.top_k].tolist()]
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


def test_an_expert_has_no_more_places_than_there_are_tokens() -> None:
    mixtures = [MixtureOfExperts(experts=4, top_k=2, capacity_factor=factor) for factor in (0.5, 1.9, 2, 1e6)]
    assert [capacity(10, each) for each in mixtures] == [3, 10, 10, 10]


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


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_balancing_loss_is_its_coefficient_for_balanced_experts_and_more_otherwise(scoring: str) -> None:
    torch.manual_seed(0)
    mlp = MixtureMLP(workload(scoring=scoring, aux_loss=0.5))
    x = torch.randn(2, 8, 32)
    for parameter in mlp.parameters():
        torch.nn.init.zeros_(parameter)
    chosen = (torch.arange(32) % 4).view(16, 2)
    scores = mlp.router(x.flatten(0, 1))[2]
    assert mlp._aux_loss(chosen, scores).item() == pytest.approx(0.5)
    with torch.no_grad():
        mlp.router.weight[0] = x.mean((0, 1))
    _, loss = mlp.balanced(x)
    assert loss is not None
    assert loss.item() > 0.5
    (gradient,) = torch.autograd.grad(loss, mlp.router.weight)
    assert gradient.norm() > 0
    assert MixtureMLP(workload()).balanced(x)[1] is None


@pytest.mark.parametrize("moe", [*SETTINGS, {"dense_layers": 1, "shared_experts": 1}], ids=str)
def test_the_parameters_are_those_that_are_counted(moe: dict[str, Any]) -> None:
    model = build_model(workload(**moe))
    assert sum(p.numel() for p in model.parameters()) == count(workload(**moe)).total


def test_balanced_routing_gives_every_expert_equally_many_copies() -> None:
    moe = workload(routing="balanced").mixture_of_experts
    assert moe is not None
    chosen = (torch.arange(16) % 4).view(8, 2)
    _, counts, equal = slots_of(chosen, moe)
    assert counts.tolist() == [4] * 4
    assert equal == 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_one_kernel_computes_what_single_products_do(counts: list[int]) -> None:
    """Groups are aligned for the kernel. The host knows no number of them."""
    torch.manual_seed(0)
    sizes = torch.tensor(counts)
    x = torch.randn(sum(counts), 16).bfloat16().requires_grad_()
    weights = torch.randn(len(counts), 8, 16).bfloat16().requires_grad_()
    results = []
    for fused in (False, True):
        y = apply_grouped(lambda rows, linear: linear(rows, weights), x, [weights], sizes, None, fused=fused)
        results.append([y, *torch.autograd.grad(y.float().square().sum(), [x, weights])])
    assert [len(result) for result in results] == [3, 3]
    for single, grouped in zip(*results, strict=True):
        torch.testing.assert_close(grouped, single, rtol=3e-2, atol=5e-1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 12))
@settings(deadline=None)
def test_copies_are_put_into_the_slots_of_their_experts_and_come_back(experts: list[int], size: int) -> None:
    expert = torch.tensor(experts)
    x = torch.randn(len(experts), 2, requires_grad=True)
    slots, counts = dropless_slots(expert, 4)
    assert counts.tolist() == [experts.count(number) for number in range(4)]
    assert expert[slots.source].tolist() == sorted(experts)
    assert move(move(x, slots), slots.reverse).equal(x)
    limited = capacity_slots(expert, 4, size)
    kept = [experts[:number].count(own) < size for number, own in enumerate(experts)]
    returned = move(move(x, limited), limited.reverse)
    assert returned.equal(x * torch.tensor(kept)[:, None])
    (gradient,) = torch.autograd.grad(returned.sum(), x)
    assert gradient.tolist() == [[float(is_kept)] * 2 for is_kept in kept]
    aligned, ends = aligned_slots(counts, len(experts), 8)
    assert all(end % 8 == 0 for end in ends.tolist())
    assert move(move(x, aligned), aligned.reverse).equal(x)


@pytest.mark.needs_gpu
@pytest.mark.parametrize("routing", ["balanced", "learned"])
def test_one_kernel_on_a_gpu_computes_what_single_products_do_and_the_host_waits_for_nothing(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs_gpu: compute capability 9.0")
    torch.manual_seed(0)
    mlp = MixtureMLP(workload(routing=routing))
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mlp.to("cuda", torch.bfloat16)
    x = torch.randn(2, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def run() -> list[torch.Tensor]:
        y = mlp(x)
        return [y, *torch.autograd.grad(y.float().square().sum(), [x, *mlp.parameters()])]

    run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        grouped = run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    monkeypatch.setattr("wirecost.train.models.grouped.one_kernel", lambda *_: False)
    assert grouped
    for value, single in zip(grouped, run(), strict=True):
        error = (value.float() - single.float()).norm() / single.float().norm()
        assert error.item() < 0.02
