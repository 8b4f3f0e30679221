"""Models of shared blocks. They contain no parallelism code."""

from wirecost.train.models.base import Batch, Model, State, Unit
from wirecost.train.models.build import (
    build_model,
    check_room,
    drawing_device,
    examples_for,
    prepared_examples_for,
)

__all__ = [
    "Batch",
    "Model",
    "State",
    "Unit",
    "build_model",
    "check_room",
    "drawing_device",
    "examples_for",
    "prepared_examples_for",
]
