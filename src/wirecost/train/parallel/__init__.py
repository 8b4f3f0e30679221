"""Parallelism strategies, one in each file. They are applied to models that contain no parallelism code."""

from wirecost.train.parallel.base import DataParallelStrategy, Execution
from wirecost.train.parallel.registry import apply_data_parallel, holds_masters

__all__ = [
    "DataParallelStrategy",
    "Execution",
    "apply_data_parallel",
    "holds_masters",
]
