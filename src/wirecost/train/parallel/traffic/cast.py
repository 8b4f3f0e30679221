"""Gradients as they are, or rounded to 16 bits, which also is the format that the network sums in."""

from __future__ import annotations

import torch

from wirecost.train.communicator import Communicator
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain


class Native:
    """An all-reduce of the buffer itself."""

    rounds = 1

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        yield self.communicator.all_reduce(flat, asynchronous=True)

    def carried(self) -> dict[str, torch.Tensor]:
        return {}


class Cast:
    """Half the bytes of FP32. The loss is divided by the ranks before backward, so that sums don't grow."""

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
