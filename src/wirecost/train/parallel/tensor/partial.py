"""Sums gradients of which each tensor-parallel rank has a part (Megatron-LM's `allreduce_layernorm_grads`)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator


class PartialGradients:
    """Gradients of parameters that process only a slice of the sequence.

    With sequence parallelism these are norms, positions, and the biases of row-parallel linears. Their
    gradients are summed over the tensor group once per iteration, in one all-reduce after the data-parallel
    synchronization. Sums commute, and the ranks of a tensor group hold the same pieces.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def sum(self, pieces: Iterable[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """Sums the gradients in place, in phase GRAD_SYNC. See `DataParallelStrategy.gradient_pieces` for
        `pieces`."""
        if self.communicator.size == 1:
            return
        partial = [piece for parameter, piece in pieces if getattr(parameter, "tensor_partial", False)]
        if not partial:
            return
        buffer = torch.cat([piece.flatten() for piece in partial])
        if len(buffer):
            self.communicator.all_reduce(buffer, phase=Phase.GRAD_SYNC)
        for piece, summed in zip(partial, buffer.split([p.numel() for p in partial]), strict=True):
            piece.copy_(summed.view_as(piece))
