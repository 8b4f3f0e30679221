"""One file for each parallelism: each is applied to a model that knows nothing of it."""

from wirecost.train.parallel.base import GradientSync
from wirecost.train.parallel.registry import apply_data_parallel, unsupported

__all__ = ["GradientSync", "apply_data_parallel", "unsupported"]
