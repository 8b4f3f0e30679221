"""Expert parallelism: each rank has a part of the experts, to which copies of tokens go by all-to-alls.

The dispatch and the combination are those of GShard (Lepikhin et al. 2020, arXiv:2006.16668, section 3.1). Ranks
of the expert group are data-parallel: each has its own tokens, and all parameters except the experts.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.experts import MixtureMLP
from wirecost.train.recorder import Recorder


class _AllToAll(torch.autograd.Function):
    """Sends consecutive rows to the ranks, and receives rows from them. Backward sends the gradients back."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], over: Communicator, phase: Phase
    ) -> torch.Tensor:
        ctx.settings = received, sent, over, phase
        return _exchange(rows, sent, received, over, phase)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        return _exchange(gradient, *ctx.settings), None, None, None, None


def _exchange(
    rows: torch.Tensor, sent: list[int], received: list[int], over: Communicator, phase: Phase
) -> torch.Tensor:
    output = rows.new_empty((sum(received), rows.shape[1]))
    over.all_to_all(output, rows.contiguous(), sent=sent, received=received, phase=phase)
    return output


class ExpertExchange:
    """Brings copies to experts on other ranks. It implements `wirecost.train.models.experts.Exchange`.

    Args:
        over: the expert group.
        same_counts: whether all ranks send each expert equally many copies. Otherwise the ranks tell one another.
    """

    def __init__(self, over: Communicator, *, same_counts: bool) -> None:
        self.over = over
        self.same_counts = same_counts

    def __call__(self, rows: torch.Tensor, counts: list[int], experts: nn.Module) -> torch.Tensor:
        ranks = self.over.size
        local = len(counts) // ranks
        arriving = self._arriving(counts, rows.device)
        sent = [sum(counts[rank * local : (rank + 1) * local]) for rank in range(ranks)]
        received = [sum(arriving[rank * local : (rank + 1) * local]) for rank in range(ranks)]
        self.over.recorder.count_expert_rows(sum(sent), sum(received))
        rows = _apply(rows, sent, received, self.over, Phase.EXPERT_DISPATCH)
        # Rows arrive by rank and then by expert. An expert needs its rows of all ranks together.
        by_expert = [[arriving[rank * local + expert] for rank in range(ranks)] for expert in range(local)]
        order = _transposed(arriving, local).to(rows.device, non_blocking=True)
        outputs = experts(rows[order], [sum(of_expert) for of_expert in by_expert])
        outputs = torch.empty_like(outputs).index_copy(0, order, outputs)
        return _apply(outputs, received, sent, self.over, Phase.EXPERT_COMBINE)

    def _arriving(self, counts: list[int], device: torch.device) -> list[int]:
        """Returns how many copies each rank sends to each of this rank's experts, by rank and then by expert."""
        ranks = self.over.size
        local = len(counts) // ranks
        if self.same_counts:
            index = self.over.group.index
            return counts[index * local : (index + 1) * local] * ranks
        told = torch.tensor(counts, device=device)
        arriving = torch.empty_like(told)
        self.over.all_to_all(arriving, told, phase=Phase.EXPERT_DISPATCH)
        return arriving.tolist()


def _apply(
    rows: torch.Tensor, sent: list[int], received: list[int], over: Communicator, phase: Phase
) -> torch.Tensor:
    return _AllToAll.apply(rows, sent, received, over, phase)  # type: ignore[return-value]


def _transposed(counts: list[int], local: int) -> torch.Tensor:
    """Returns the order in which rows by rank and then by expert are by expert and then by rank, int64 (rows,)."""
    starts = [0, *accumulate(counts)]
    blocks = [n for expert in range(local) for n in range(expert, len(counts), local)]
    return torch.cat([torch.arange(starts[n], starts[n + 1]) for n in blocks])


def apply_expert_parallel(model: nn.Module, groups: Groups, recorder: Recorder) -> None:
    """Gives each rank of the expert group its part of the experts of a whole model, in place.

    The parts have the attribute `expert_part`.
    """
    over = Communicator(groups.expert, recorder)
    if over.size == 1:
        return
    for module in model.modules():
        if isinstance(module, MixtureMLP):
            for name, parameter in list(module.experts.named_parameters()):
                part = nn.Parameter(parameter.detach().chunk(over.size)[over.group.index].clone())
                vars(part)["expert_part"] = True
                setattr(module.experts, name, part)
            moe = module.moe
            static = moe.routing == "balanced" or moe.capacity_factor is not None
            module.exchange = ExpertExchange(over, same_counts=static)


def whole_experts(part: torch.Tensor, tags: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Returns all experts. Every rank of the expert group calls it, outside an iteration.

    Args:
        part: this rank's values.
        tags: the parameter with the attributes that describe the split.
    """
    if not getattr(tags, "expert_part", False):
        return part
    parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in groups.expert.ranks]
    torch.distributed.all_gather(parts, part.contiguous(), group=groups.expert.process_group)
    return torch.cat(parts)
