"""Gradients of which each tensor-parallel rank has a part (Megatron-LM's `allreduce_layernorm_grads`)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator


class PartialGradients:
    """With sequence parallelism norms, positions and the biases of row-parallel linears see a slice of the
    sequence. Their gradients are summed over the tensor group once an iteration, in one all-reduce, after the
    data-parallel strategy is done: sums commute, and ranks of a tensor group hold the same pieces."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def sum(self, pieces: Iterable[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """In place, in phase GRAD_SYNC. Args as `DataParallelStrategy.gradient_pieces` gives them."""
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
