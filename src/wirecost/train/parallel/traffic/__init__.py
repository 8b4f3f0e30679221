"""What gradients are turned into for the wire of the data-parallel group, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wirecost.spec import GradientTraffic, Plan
from wirecost.train.communicator import Communicator
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.traffic.base import Traffic
from wirecost.train.parallel.traffic.cast import Cast, Native
from wirecost.train.parallel.traffic.int8 import BlockInt8
from wirecost.train.parallel.traffic.powersgd import PowerSGD

WIRE_DTYPES = {GradientTraffic.FP16: torch.float16, GradientTraffic.BF16: torch.bfloat16}

__all__ = ["WIRE_DTYPES", "Traffic", "traffic_for"]


def traffic_for(
    plan: Plan, communicator: Communicator, buckets: Sequence[Bucket], device: torch.device
) -> Traffic:
    """The all-reduce of `buckets` that a plan names; a single rank sends nothing and loses nothing."""
    if communicator.size == 1 or plan.gradient_traffic is GradientTraffic.NATIVE:
        return Native(communicator)
    if plan.gradient_traffic is GradientTraffic.INT8:
        return BlockInt8(communicator)
    if plan.gradient_traffic is GradientTraffic.POWERSGD:
        return PowerSGD(communicator, plan.powersgd_rank, buckets, device)
    return Cast(communicator, WIRE_DTYPES[plan.gradient_traffic])
