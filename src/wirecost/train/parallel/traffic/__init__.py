"""The formats in which gradients are sent over the data-parallel group."""

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
    """Returns the all-reduce of `buckets` in the format that a plan names. A single rank doesn't compress
    gradients."""
    if communicator.size == 1 or plan.gradient_traffic is GradientTraffic.NATIVE:
        return Native(communicator)
    if plan.gradient_traffic is GradientTraffic.INT8:
        return BlockInt8(communicator)
    if plan.gradient_traffic is GradientTraffic.POWERSGD:
        return PowerSGD(communicator, plan.powersgd_rank, buckets, device)
    return Cast(communicator, WIRE_DTYPES[plan.gradient_traffic])
