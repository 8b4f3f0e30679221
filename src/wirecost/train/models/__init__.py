"""Models from shared blocks. They know nothing of parallelism."""

from wirecost.train.models.build import build_model

__all__ = ["build_model"]
