"""The interface of a format in which gradients are sent."""

from __future__ import annotations

from typing import Protocol

import torch

from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain


class Traffic(Protocol):
    """An all-reduce of buckets in some format.

    Attributes:
        rounds: number of dependent collectives for one bucket.
    """

    rounds: int

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        """Sums gradients over the group in place, with the accuracy of the format.

        Args:
            flat: this rank's gradients of the bucket, (bucket.size,).
        """
        ...

    def carried(self) -> dict[str, torch.Tensor]:
        """Returns this rank's state between iterations, by name, as a part of checkpoints."""
        ...
