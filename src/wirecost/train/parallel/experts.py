"""Expert parallelism: each rank has a part of the experts, to which copies of tokens go by all-to-alls.

The dispatch and the combination are those of GShard (Lepikhin et al. 2020, arXiv:2006.16668, section 3.1). Ranks
of the expert group are data-parallel: each has its own tokens, and all parameters except the experts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.experts import MixtureMLP
from wirecost.train.models.slots import dropless_slots, move
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

    If all experts have equally many slots, the host knows all numbers. Otherwise the ranks tell one another how
    many copies they send to each expert.

    Args:
        over: the expert group.
    """

    def __init__(self, over: Communicator) -> None:
        self.over = over

    def __call__(
        self, rows: torch.Tensor, counts: torch.Tensor, equal: int | None, experts: nn.Module
    ) -> torch.Tensor:
        ranks = self.over.size
        local = len(counts) // ranks
        if equal is None:
            arriving = torch.empty_like(counts)
            self.over.all_to_all(arriving, counts, phase=Phase.EXPERT_DISPATCH)
            # The host needs these numbers, so it waits for the device.
            sent, received = torch.stack([counts, arriving]).view(2, ranks, local).sum(-1).tolist()
        else:
            arriving = counts
            sent = received = [local * equal] * ranks
        self.over.recorder.count_expert_rows(sum(sent), sum(received))
        rows = _apply(rows, sent, received, self.over, Phase.EXPERT_DISPATCH)
        # Rows arrive by rank and then by expert. An expert needs its rows of all ranks together.
        expert = torch.arange(local, device=rows.device).repeat(ranks)
        expert = expert.repeat_interleave(arriving, output_size=sum(received))
        slots, own_counts = dropless_slots(expert, local)
        outputs = experts(move(rows, slots), own_counts, None if equal is None else ranks * equal)
        return _apply(move(outputs, slots.reverse), received, sent, self.over, Phase.EXPERT_COMBINE)


def _apply(
    rows: torch.Tensor, sent: list[int], received: list[int], over: Communicator, phase: Phase
) -> torch.Tensor:
    return _AllToAll.apply(rows, sent, received, over, phase)  # type: ignore[return-value]


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
            module.experts.divided = True
            module.exchange = ExpertExchange(over)


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
