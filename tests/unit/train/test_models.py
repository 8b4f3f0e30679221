from __future__ import annotations

import pytest

from wirecost.spec import Workload
from wirecost.spec.parameters import count
from wirecost.spec.presets import named, names

torch = pytest.importorskip("torch")


PUBLISHED = {
    "gpt-2-medium": 354_823_168,
    "gpt-2-large": 774_030_080,
    "bert-large": 336_226_108,
    "t5-large": 737_668_096,
    "gpt-18.4b": 18.4e9,
    "llama-3-8b": 8_030_261_248,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert built(Workload(**named("workload", name))) == pytest.approx(PUBLISHED[name], rel=5e-3)


def test_the_model_that_is_trained_has_the_parameters_that_are_predicted() -> None:
    """Of every preset that the engine trains, with few layers: the rest are like them."""
    from wirecost.train.checks import check_workload

    trained = 0
    for name in names("workload"):
        workload = Workload(**named("workload", name))
        if workload.mixture_of_experts and workload.mixture_of_experts.moe_layers:
            assert check_workload(workload), name
            continue
        few = {"layers": 2, "decoder_layers": workload.decoder_layers and 3}
        workload = Workload(**{**workload.model_dump(), **few})
        if check_workload(workload) is None:
            # The engine leaves out what no other key describes, as biases of queries and norms of heads.
            others = workload.layers * workload.extra_layer_parameters + workload.extra_parameters
            assert built(workload) + others == count(workload).total, name
            trained += 1
    assert trained >= 40


def built(workload: Workload) -> int:
    from wirecost.train.models import build_model

    with torch.device("meta"):
        return sum(p.numel() for p in build_model(workload).parameters())


def test_the_model_is_causal_and_starts_at_chance() -> None:
    from wirecost.train.models import build_model

    torch.manual_seed(0)
    workload = Workload(name="t", layers=2, hidden=32, heads=2, vocab_size=100, sequence_length=16)
    model = build_model(workload)
    ids = torch.randint(0, 100, (2, 17))
    batch = {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
    assert model(batch).item() == pytest.approx(torch.log(torch.tensor(100.0)).item(), rel=0.05)
    embedding, *layers, _ = model.units
    state = embedding((), batch)
    changed = (state[0].clone(),)
    changed[0][:, 10:] += 1
    for layer in layers:
        state, changed = layer(state, batch), layer(changed, batch)
    assert torch.equal(state[0][:, :10], changed[0][:, :10])
    assert not torch.equal(state[0][:, 10:], changed[0][:, 10:])


def test_master_weights_move_by_steps_that_16_bits_would_lose() -> None:
    from wirecost.spec import Optimizer
    from wirecost.train.adam import MasterAdamW

    half, single = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    single.load_state_dict(half.state_dict())
    half.to(torch.bfloat16)
    settings = Optimizer(learning_rate=1e-5, weight_decay=0)
    optimizers = [MasterAdamW(m.parameters(), settings) for m in (half, single)]
    start = optimizers[0].masters[0].detach().clone()
    for _ in range(10):
        for model, optimizer in zip((half, single), optimizers, strict=True):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
    moved = start - optimizers[0].masters[0]
    assert torch.allclose(moved, torch.full_like(moved, 1e-4), rtol=1e-2)
    assert half.weight.dtype == torch.bfloat16
    assert torch.equal(half.weight, optimizers[0].masters[0].to(torch.bfloat16))
