"""The model of a workload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch

from wirecost.errors import SpecError
from wirecost.model.parameters import count
from wirecost.spec import Workload
from wirecost.train.models.base import Model
from wirecost.train.models.bert import bert
from wirecost.train.models.bert_examples import BERTExamples
from wirecost.train.models.gpt import GPTExamples, gpt
from wirecost.train.models.llama import llama
from wirecost.train.models.t5 import t5
from wirecost.train.models.t5_examples import T5Examples
from wirecost.train.refusals import untrainable
from wirecost.train.refusals.workloads import variant_of


class Examples(Protocol):
    """Turns running text into a family's micro-batches."""

    length: int  # tokens of text for one sequence

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Args:
        rows: token ids, (sequences, length).
        draws: randomness for each sequence (masks), the same wherever the sequence is trained on.
        """
        ...


BUILDERS: dict[str, tuple[Callable[[Workload], Model], Callable[[Workload], Examples]]] = {
    "gpt": (gpt, GPTExamples),
    "llama": (llama, GPTExamples),
    "bert": (bert, BERTExamples),
    "t5": (t5, T5Examples),
}
"""Of each variant (`wirecost.train.refusals.workloads`): its model, and what makes its micro-batches."""


ROOM = 0.25
"""Of a device's memory, for the FP32 weights of a whole model before it is cut."""


def drawing_device(workload: Workload, device: torch.device) -> AbstractContextManager[object]:
    """Where to build a model that goes to `device`: there, if it has room for the whole; a host's processor takes
    seconds for each 100 million weights. GPUs of unlike kinds, which may draw unlike weights, leave it to the
    processor, and so does a model that wouldn't fit."""
    if device.type != "cuda":
        return nullcontext()
    if 4 * count(workload).total > ROOM * torch.cuda.get_device_properties(device).total_memory:
        return nullcontext()
    kinds = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return device if len(kinds) == 1 else nullcontext()


def build_model(workload: Workload) -> Model:
    """A freshly initialised model.

    Raises:
        SpecError: for a family, or a variant of it, that the engine does not train.
    """
    if reason := untrainable(workload):
        raise SpecError(reason)
    return BUILDERS[variant_of(workload).name][0](workload)


def examples_for(workload: Workload) -> Examples:
    """What makes the workload's micro-batches."""
    return BUILDERS[variant_of(workload).name][1](workload)
