"""What is compiled unit by unit: one compilation serves all layers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch._dynamo.utils import counters

from wirecost.spec import Plan, Recompute, Workload
from wirecost.train.models import build_model
from wirecost.train.models.base import run_units
from wirecost.train.recompute import apply_recompute


@pytest.mark.parametrize("recompute", list(Recompute))
def test_layers_share_what_is_compiled(recompute: Recompute) -> None:
    workload = Workload(name="w", layers=10, hidden=32, heads=2, vocab_size=250, sequence_length=8)
    model = build_model(workload)
    apply_recompute(Plan(name="p", recompute=recompute), model)
    torch._dynamo.reset()
    counters.clear()
    for unit in model.units:
        unit.compile(backend="aot_eager")
    tokens = torch.randint(0, workload.vocab_size, (2, 9))
    (loss,) = run_units(model.units, (), {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]})
    loss.backward()
    frames = counters["frames"]
    # PyTorch compiles a function at most eight times, then silently leaves it as it is.
    assert frames["ok"] == frames["total"] <= 4
