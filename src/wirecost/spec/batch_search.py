"""Searches for the largest micro-batch that fits into memory."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.spec.experiment import Experiment

MOST_TRIALS = 4
"""Most trials of a search for the largest micro-batch."""


@dataclass(frozen=True)
class BatchSearch:
    """A search for the largest micro-batch that fits into memory. Memory doesn't depend on the network, so that
    the trials run over the first one alone.

    Attributes:
        smallest: the experiment with a micro-batch of 1 over each network.
        start: micro-batch of the first trial. None is the predicted one.
        repeats: number of times that the experiment with the largest micro-batch is run.
    """

    smallest: tuple[Experiment, ...]
    start: int | None
    repeats: int

    def at(self, micro_batch: int, network: int = 0, repeat: int = 1) -> Experiment:
        """Returns the experiment with a micro-batch over one of the networks, which are numbered from 0."""
        base = self.smallest[network]
        batches = {"micro_batch": micro_batch, "global_batch": micro_batch * base.data_parallel_degree}
        return base.model_copy(update={**batches, "repeat": repeat})

    def with_batch(self, micro_batch: int) -> list[Experiment]:
        """Returns the experiments with a micro-batch over all networks, with their repeats."""
        repeats = range(1, self.repeats + 1)
        return [self.at(micro_batch, network, r) for network in range(len(self.smallest)) for r in repeats]
