"""ZeRO's shards: together they are the whole gradient, piece by piece."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from wirecost.spec import DataParallel, Plan, Workload
from wirecost.train.clock import HostClock
from wirecost.train.groups import Group, Groups
from wirecost.train.models import build_model
from wirecost.train.parallel.zero1 import Zero1
from wirecost.train.recorder import Recorder


class FakeGroups(Groups):
    """Of one of three ranks that never talk."""

    def __init__(self, index: int) -> None:
        self._groups = {name: Group(name, (0, 1, 2), index, None) for name in ("data_parallel", "sharding")} | {
            "replication": Group("replication", (index,), 0, None)
        }


@pytest.mark.parametrize("overlap", [True, False])
def test_the_pieces_of_all_ranks_are_every_gradient_once(overlap: bool) -> None:
    workload = Workload(name="w", layers=2, hidden=24, heads=2, vocab_size=101, sequence_length=8)
    plan = Plan(name="p", data_parallel=DataParallel.ZERO1, overlap=overlap, bucket_bytes=20_000)
    sizes = {name: p.numel() for name, p in build_model(workload).named_parameters()}
    found: dict[str, list[torch.Tensor]] = {}
    for index in range(3):
        torch.manual_seed(0)
        model = build_model(workload)
        before = [p.detach().clone() for p in model.parameters()]
        strategy = Zero1(model, plan, FakeGroups(index), Recorder(HostClock()))
        for parameter, same in zip(model.parameters(), before, strict=True):
            assert torch.equal(parameter, same)
        strategy.zero_grad()
        wanted = [1000 * n + torch.arange(p.numel()).view_as(p) for n, p in enumerate(model.parameters())]
        with strategy.micro_batch(last=False):
            torch.stack([(p * w).sum() for p, w in zip(model.parameters(), wanted, strict=True)]).sum().backward()
        names = {p: name for name, p in model.named_parameters()}
        for parameter, piece in strategy.gradient_pieces():
            found.setdefault(names[parameter], []).append(piece)
        assert strategy.pieces_over is not None
        assert strategy.pieces_over.size == 3
        held = sum(p.numel() for p in strategy.optimizer_parameters())
        assert held < sum(p.numel() for p in before) / 3 + 64 * 2 * len(before)
    assert found.keys() == sizes.keys()
    for number, (name, size) in enumerate(sizes.items()):
        expected = (1000 * number + torch.arange(size)).float()
        assert torch.equal(torch.cat(found[name]).sort().values, expected)
