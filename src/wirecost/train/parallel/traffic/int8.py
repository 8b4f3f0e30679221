"""Gradients in 8 bits with one scale for each block of elements.

Collectives can't sum this format. The all-reduce therefore consists of an all-to-all and an all-gather, as in
ZeRO++ (Wang et al. 2023, arXiv:2306.10209, section 4.3) and in Dettmers 2016 (arXiv:1511.04561). Every rank
sends each other rank its part, sums the received parts in FP32, and sends the sum to all ranks. Each number is
rounded twice.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from wirecost.train.communicator import Communicator
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain

BLOCK = 256
"""Number of elements that share an FP32 scale, which adds 4 bytes to 256."""


class BlockInt8:
    """An all-reduce in 8 bits, as an all-to-all and an all-gather with S = n (c + 4 c / 256) bytes each.

    For N elements over n ranks, c is N/n rounded up to whole blocks.
    """

    rounds = 2

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        ranks = self.communicator.size
        part = -(-flat.numel() // (ranks * BLOCK)) * BLOCK
        padded = functional.pad(flat, (0, ranks * part - flat.numel()))
        sent = encode(padded.view(ranks, part))
        received = torch.empty_like(sent)
        yield self.communicator.all_to_all(received, sent, asynchronous=True)
        summed = encode(decode(received).sum(0, keepdim=True))
        yield self.communicator.all_gather(received.view(-1), summed.view(-1), asynchronous=True)
        flat.copy_(decode(received).view(-1)[: flat.numel()])

    def carried(self) -> dict[str, torch.Tensor]:
        return {}


def encode(values: torch.Tensor) -> torch.Tensor:
    """Encodes values, (rows, columns), to uint8, (rows, columns + 4 columns / BLOCK), which includes the scales.

    The number of columns must be a multiple of `BLOCK`.
    """
    rows, columns = values.shape
    blocks = values.float().view(rows, columns // BLOCK, BLOCK)
    scales = blocks.abs().amax(2, keepdim=True) / 127
    # A block of zeros has scale 0. `decode` returns infinities and NaN as NaN.
    numbers = torch.where(scales > 0, blocks / scales, 0).round().to(torch.int8)
    return torch.cat(
        [numbers.view(torch.uint8).view(rows, columns), scales.view(torch.uint8).view(rows, -1)], dim=1
    )


def decode(message: torch.Tensor) -> torch.Tensor:
    """Decodes the result of `encode` to FP32."""
    rows, width = message.shape
    columns = width * BLOCK // (BLOCK + 4)
    numbers = message[:, :columns].contiguous().view(torch.int8).view(rows, -1, BLOCK)
    scales = message[:, columns:].contiguous().view(torch.float32).view(rows, -1, 1)
    return (numbers * scales).view(rows, columns)
