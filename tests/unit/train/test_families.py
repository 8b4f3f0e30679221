"""BERT, T5 and Llama as models: what each may see, and what its attention adds."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from support.parity import LLAMA, TOKENS, WORKLOADS
from wirecost.spec import Family, Workload
from wirecost.train.batches import Batches
from wirecost.train.checks import check_workload
from wirecost.train.models import Batch, Model, blocks, build_model, examples_for, llama, t5
from wirecost.train.models.base import run_units

ALL = {**{str(family): workload for family, workload in WORKLOADS.items()}, "llama": LLAMA}


def model_and_batch(workload: Workload, sequences: int = 8) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    batches = Batches(TOKENS, examples_for(workload), global_batch=sequences, micro_batch=sequences, seed=1).share(
        0, 0, 1
    )
    return build_model(workload), batches[0]


@pytest.mark.parametrize("name", ALL)
def test_the_loss_starts_at_chance_and_falls(name: str) -> None:
    workload = ALL[name]
    model, batch = model_and_batch(workload)
    chance = math.log(workload.vocab_size) + (math.log(2) if name == "bert" else 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # T5's outputs have a variance of one at the start, which costs half a nat.
    assert losses[0] == pytest.approx(chance + (0.5 if name == "t5" else 0), rel=0.05)
    assert losses[-1] < losses[0] - 0.5
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", ALL)
def test_the_mean_loss_does_not_depend_on_how_sequences_are_grouped(name: str) -> None:
    model, batch = model_and_batch(ALL[name])
    parts = [
        model({key: value[start : start + size] for key, value in batch.items()})
        for start, size in ((0, 2), (2, 2), (4, 4))
    ]
    weighted = (parts[0] + parts[1] + 2 * parts[2]) / 4
    assert model(batch).item() == pytest.approx(weighted.item(), rel=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_units_hand_on_all_that_the_next_need(name: str) -> None:
    """Every tensor of a state is (sequences, positions, hidden), so that a pipeline can cut anywhere."""
    workload = ALL[name]
    model, batch = model_and_batch(workload, sequences=2)
    state: tuple[torch.Tensor, ...] = ()
    for unit in list(model.units)[:-1]:
        state = unit(state, batch)
        assert all(x.shape[0] == 2 and x.shape[2] == workload.hidden for x in state)
    assert run_units(model.units[-1:], state, batch)[0].shape == ()


def test_distances_fall_into_t5s_buckets() -> None:
    """Exact to 7 (both ways) or 15, logarithmic to 128, as in the released implementation."""
    distances = torch.tensor([-200, -128, -8, -7, -1, 0, 1, 7, 8, 128])
    assert t5.buckets(distances, both_ways=True).tolist() == [15, 15, 8, 7, 1, 0, 17, 23, 24, 31]
    distances = torch.tensor([-200, -128, -17, -16, -15, -1, 0, 1, 100])
    assert t5.buckets(distances, both_ways=False).tolist() == [31, 31, 16, 16, 15, 1, 0, 0, 0]


@pytest.mark.parametrize("causal", [False, True])
def test_the_relative_bias_is_the_gathered_one(causal: bool) -> None:
    weight = torch.nn.Parameter(torch.randn(t5.BUCKETS, 3, dtype=torch.float64))
    length = 21
    (bias,) = t5.RelativeBias(weight, length, causal=causal)()
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    gathered = weight[t5.buckets(distance, both_ways=not causal)].permute(2, 0, 1)
    if causal:
        gathered = gathered.masked_fill(distance > 0, -math.inf)
    assert torch.equal(bias, gathered)
    drawn = torch.randn(3, length, length, dtype=torch.float64).masked_fill(gathered.isinf(), 0)
    found, expected = (
        torch.autograd.grad((x.masked_fill(x.isinf(), 0) * drawn).sum(), weight)[0] for x in (bias, gathered)
    )
    torch.testing.assert_close(found, expected)


def test_t5s_decoder_sees_no_future_and_its_encoder_all() -> None:
    workload = WORKLOADS[Family.T5]
    model, batch = model_and_batch(workload)
    units = list(model.units)
    turn = 1 + workload.layers

    def run(**changed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        memory, x = run_units(units[:-1], (), {**batch, **changed})
        return memory, x

    memory, x = run()
    other = batch["decoder_inputs"].clone()
    other[:, 5:] = 3
    _, changed = run(decoder_inputs=other)
    assert torch.equal(x[:, :5], changed[:, :5])
    assert not torch.equal(x[:, 5:], changed[:, 5:])
    inputs = batch["inputs"].clone()
    inputs[:, -1] = 3
    changed_memory, changed = run(inputs=inputs)
    assert not torch.equal(memory[:, 0], changed_memory[:, 0])
    assert not torch.equal(x[:, 0], changed[:, 0])
    assert isinstance(units[turn], t5.T5Turn)


def test_bert_sees_both_ways() -> None:
    model, batch = model_and_batch(WORKLOADS[Family.BERT])
    embedding, layer, *_ = model.units
    (x,) = layer(embedding((), batch), batch)
    inputs = batch["inputs"].clone()
    inputs[:, -2] = 3
    (changed,) = layer(embedding((), {**batch, "inputs": inputs}), batch)
    assert not torch.equal(x[:, 0], changed[:, 0])


def test_llama_sees_no_future() -> None:
    model, batch = model_and_batch(LLAMA)
    units = list(model.units)[:-1]
    inputs = batch["inputs"].clone()
    inputs[:, 10:] = 3
    (x,), (changed,) = (run_units(units, (), b) for b in (batch, {**batch, "inputs": inputs}))
    torch.testing.assert_close(x[:, :10], changed[:, :10])
    assert not torch.equal(x[:, 10:], changed[:, 10:])


def test_rotary_scores_depend_on_the_distance_only() -> None:
    rotary = llama.Rotary(64, 8)
    q, k = torch.randn(2, 8)
    cosine, sine = rotary(64, None)
    scores = blocks.rotate(q.expand(64, 8), cosine, sine) @ blocks.rotate(k.expand(64, 8), cosine, sine).T
    for distance in (0, 1, 9):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    positions = torch.tensor([5, 0, 9])
    assert torch.equal(rotary(3, positions)[0], cosine[positions])


def test_grouped_heads_share_keys_and_values() -> None:
    torch.manual_seed(0)
    grouped = llama.GroupedAttention(32, 4, 2, 8)
    single = llama.GroupedAttention(32, 4, 4, 8)
    with torch.no_grad():
        # Each group of 2 queries, a key and a value becomes two of one query, that key and that value.
        groups = grouped.qkv.weight.view(2, 4, 8, 32)
        single.qkv.weight.view(2, 2, 3, 8, 32).copy_(
            torch.stack([torch.stack([g[[query, 2, 3]] for query in range(2)]) for g in groups])
        )
        single.out.weight.copy_(grouped.out.weight)
    x, angles = torch.randn(2, 16, 32), llama.Rotary(16, 8)(16, None)
    assert torch.allclose(grouped(x, angles), single(x, angles), rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt", {"kv_heads": 2}, "grouped-query attention can't be trained here"),
        ("gpt", {"head_dim": 16}, "head_dim 16 can't be trained here"),
        ("gpt", {"activation": "swiglu"}, "activation 'swiglu' can't be trained here; only 'gelu' can"),
        ("llama", {"biases": True}, "biases 'True' can't be trained here; only 'False' can"),
        ("llama", {"head_dim": 7}, "rotary positions need an even head_dim, not 7"),
        ("bert", {"sequence_length": 4}, "sequence_length 4 is too short for two halves; at least 5"),
        ("bert", {"norm": "rmsnorm"}, "norm 'rmsnorm' can't be trained here; only 'layernorm' can"),
        ("t5", {"decoder_sequence_length": 128}, "too few to cut spans out; at least 64 and 2"),
        ("t5", {"activation": "geglu"}, "activation 'geglu' can't be trained here; only 'relu' can"),
        ("gpt", {"mixture_of_experts": {"experts": 4, "top_k": 2}}, "can be trained in a Llama only"),
        (
            "llama",
            {"mixture_of_experts": {"experts": 4, "top_k": 2, "dense_layers": 99}},
            "dense_layers 99 is more than layers",
        ),
    ],
)
def test_what_cannot_be_trained(family: str, changes: dict[str, object], message: str) -> None:
    workload = Workload(**{**ALL[family].model_dump(), **changes})
    assert message in (check_workload(workload) or "")
    with pytest.raises(Exception, match="workload"):
        build_model(workload)


def test_16_bits_lose_no_position() -> None:
    """Angles of far positions differ by less than BF16 can say; their cosines do not."""
    half = llama.Rotary(4096, 64).to(torch.bfloat16)
    exact = llama.Rotary(4096, 64)
    assert (half.cosine.float() - exact.cosine).abs().max() < 2**-8
    assert np.unique(half.cosine[-64:, 0].float().numpy()).size > 32
