"""Tensor parallelism (Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053), with or without sequence parallelism
(Korthikanti et al. 2022, arXiv:2205.05198)."""

from wirecost.train.parallel.tensor.apply import apply_tensor_parallel
from wirecost.train.parallel.tensor.partial import PartialGradients
from wirecost.train.parallel.tensor.refusals import indivisible
from wirecost.train.parallel.tensor.shards import whole_parameter

__all__ = ["PartialGradients", "apply_tensor_parallel", "indivisible", "whole_parameter"]
