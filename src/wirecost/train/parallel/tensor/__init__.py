"""Tensor parallelism (Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053) and sequence parallelism (Korthikanti
et al. 2022, arXiv:2205.05198).

`apply` is imported only if a model is split, because its hooks load PyTorch's compiler.
"""

from wirecost.train.parallel.tensor.partial import PartialGradients
from wirecost.train.parallel.tensor.shards import whole_parameter

__all__ = ["PartialGradients", "whole_parameter"]
