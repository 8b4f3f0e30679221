"""One file for each parallelism: each is applied to a model that knows nothing of it."""

from wirecost.train.parallel.base import DataParallelStrategy, Execution
from wirecost.train.parallel.registry import apply_data_parallel, holds_masters

__all__ = [
    "DataParallelStrategy",
    "Execution",
    "apply_data_parallel",
    "holds_masters",
]
