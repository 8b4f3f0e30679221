"""What a bucketed all-reduce asks of the format on the wire."""

from __future__ import annotations

from typing import Protocol

import torch

from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain


class Traffic(Protocol):
    """`rounds`: collectives one after another for one bucket."""

    rounds: int

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        """`flat`, this rank's gradients of a bucket, becomes their sum over the group (as the wire lets it)."""
        ...

    def carried(self) -> dict[str, torch.Tensor]:
        """What this rank takes over from one iteration to the next, by name: part of a checkpoint."""
        ...
