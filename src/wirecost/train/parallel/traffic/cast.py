"""Gradients in their own dtype, or rounded to 16 bits. The collective sums them in the dtype that is sent."""

from __future__ import annotations

import torch

from wirecost.train.communicator import Communicator
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain


class Native:
    """An all-reduce of the gradients in their own dtype."""

    rounds = 1

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        yield self.communicator.all_reduce(flat, asynchronous=True)

    def carried(self) -> dict[str, torch.Tensor]:
        return {}


class Cast:
    """An all-reduce of gradients rounded to 16 bits, which halves the bytes of FP32.

    Sums don't grow with the number of ranks, because the loss is divided by it before backward.
    """

    rounds = 1

    def __init__(self, communicator: Communicator, dtype: torch.dtype) -> None:
        self.communicator = communicator
        self.dtype = dtype

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        sent = flat.to(self.dtype)
        yield self.communicator.all_reduce(sent, asynchronous=True)
        if sent is not flat:
            flat.copy_(sent)

    def carried(self) -> dict[str, torch.Tensor]:
        return {}
