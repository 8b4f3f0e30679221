"""Builds the model of a workload, and what makes its micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch

from wirecost.corpus.prepared import CorpusVocabulary
from wirecost.errors import SpecError
from wirecost.spec import Experiment, Family, Workload
from wirecost.spec.parameters import count
from wirecost.train.checks import check_workload
from wirecost.train.checks.workloads import variant_of
from wirecost.train.models.base import Model
from wirecost.train.models.bert import bert
from wirecost.train.models.bert_examples import BERTExamples
from wirecost.train.models.bert_pairs import BERTPairs
from wirecost.train.models.gpt import GPTExamples, gpt
from wirecost.train.models.llama import llama
from wirecost.train.models.t5 import t5
from wirecost.train.models.t5_examples import T5Examples


class Examples(Protocol):
    """Makes a family's micro-batches from text.

    Attributes:
        length: number of tokens of text for one sequence.
        overlap: number of these that the next sequence of the text begins with.
    """

    length: int
    overlap: int

    def batch(self, rows: np.ndarray, draws: list[np.random.Generator]) -> dict[str, torch.Tensor]:
        """Returns a micro-batch.

        Args:
            rows: token ids, (sequences, length).
            draws: a random generator for each sequence. A sequence has the same one on every rank.
        """
        ...


BUILDERS: dict[str, tuple[Callable[[Workload], Model], Callable[[Workload], Examples]]] = {
    "gpt": (gpt, GPTExamples),
    "llama": (llama, GPTExamples),
    "bert": (bert, BERTExamples),
    "t5": (t5, T5Examples),
}
"""The model and the micro-batches of each variant in `wirecost.train.checks.workloads`."""


MAX_MEMORY_FRACTION = 0.25
"""Fraction of a device's memory that the FP32 weights of a whole model may take before it is split."""


def drawing_device(workload: Workload, device: torch.device) -> AbstractContextManager[object]:
    """Returns a context in which a model for `device` is built on that device, or otherwise on the CPU.

    A CPU takes seconds for each 100 million weights. It is used if the model doesn't fit on the device, or if
    GPUs of different kinds are present, because these may draw different weights.
    """
    if device.type != "cuda":
        return nullcontext()
    memory_bytes = torch.cuda.get_device_properties(device).total_memory
    if 4 * count(workload).total > MAX_MEMORY_FRACTION * memory_bytes:
        return nullcontext()
    kinds = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return device if len(kinds) == 1 else nullcontext()


def check_room(experiment: Experiment, device: torch.device, memory_bytes: int | None) -> None:
    """Checks that the host can hold the FP32 weights of the whole model, which each rank draws before it is split.

    The kernel would end the ranks, and other processes with them.

    Args:
        memory_bytes: the memory of this host, or None if it isn't known.

    Raises:
        MemoryError: if it can't.
    """
    workload = experiment.workload
    if memory_bytes is None or not isinstance(drawing_device(workload, device), nullcontext):
        return
    ranks = experiment.ranks if experiment.network.emulate is not None else experiment.ranks_per_host
    need = 4 * count(workload).total
    if ranks * need > memory_bytes:
        asked, held = (f"{size / 2**30:.2f} GiB" for size in (ranks * need, memory_bytes))
        raise MemoryError(
            f"unable to allocate {asked} on a host of {held}: each of its {ranks} ranks draws the FP32 weights of "
            f"'{workload.name}'; train a smaller model, or predict this one"
        )


def build_model(workload: Workload) -> Model:
    """Returns an initialised model.

    Raises:
        SpecError: if the engine can't train the workload.
    """
    if problem := check_workload(workload):
        raise SpecError(problem)
    return BUILDERS[variant_of(workload).name][0](workload)


def examples_for(workload: Workload) -> Examples:
    """Returns the object that makes a workload's micro-batches."""
    return BUILDERS[variant_of(workload).name][1](workload)


def prepared_examples_for(workload: Workload, vocabulary: CorpusVocabulary) -> Examples | BERTPairs:
    """Returns the object that makes a workload's micro-batches from a prepared corpus."""
    if workload.family is Family.BERT:
        return BERTPairs(workload, vocabulary)
    if workload.family is Family.T5:
        return T5Examples(workload, vocabulary.special)
    return examples_for(workload)
