"""Writes checkpoints and validates between iterations, and measures the time of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist

from wirecost.corpus.prepared import Windows
from wirecost.corpus.tokens import Tokens
from wirecost.errors import SpecError
from wirecost.spec import Experiment
from wirecost.train.batches import Batches
from wirecost.train.engine import Engine

if TYPE_CHECKING:
    from wirecost.train.checkpoint import Checkpoints

HELD_OUT = 0.05
"""Fraction of the text, at its end, that is used for validation only."""


@dataclass(frozen=True)
class TrainedEvent:
    """One checkpoint or validation on one rank.

    Attributes:
        after_iteration: index of the iteration before it.
        start_ns, end_ns: times on the clock of the samples.
        bytes: the bytes that this rank wrote in a checkpoint.
        loss: mean loss of a validation over the held-out batches. It is the same on all ranks of the last pipeline
            stage, and None on the others.
    """

    kind: Literal["checkpoint", "validation"]
    after_iteration: int
    start_ns: int
    end_ns: int
    bytes: int | None = None
    loss: float | None = None


AnyTokens = TypeVar("AnyTokens", bound=Tokens | Windows)


def split_tokens(tokens: AnyTokens, experiment: Experiment, length: int) -> tuple[AnyTokens, AnyTokens]:
    """Splits the text into a part for training and a part for validation, which is empty without validation.

    Args:
        tokens: token ids, (tokens,), or windows.
        length: number of tokens of text for one sequence.

    Raises:
        SpecError: if the text is too short to be split.
    """
    if not experiment.periodic.validate_every:
        empty: Any = tokens
        return tokens, empty[:0]
    cut = len(tokens) - max(round(HELD_OUT * len(tokens)), length)
    if cut < length:
        raise SpecError(
            f"the corpus has {len(tokens)} tokens: too few to keep a sequence of {length} for validation"
        )
    sliced: Any = tokens
    return sliced[:cut], sliced[cut:]


class PeriodicTasks:
    """Validation and checkpoints between iterations. They wait for the device, so that they don't count for
    iterations.

    Args:
        batches: batches of the validation text.
        checkpoints: writes checkpoints, or None for none.
    """

    def __init__(self, engine: Engine, batches: Batches, checkpoints: Checkpoints | None) -> None:
        self.engine = engine
        self.batches = batches
        self.checkpoints = checkpoints
        self.settings = engine.groups.experiment.periodic

    def after(self, index: int) -> Iterator[TrainedEvent]:
        """Validates and writes a checkpoint, if they are due after iteration `index`."""
        if _is_due(self.settings.validate_every, index):
            yield self._validation(index)
        if self.checkpoints is not None and _is_due(self.settings.checkpoint_every, index):
            start_ns = self._now_ns()
            written = self.checkpoints.save(index)
            yield TrainedEvent("checkpoint", index, start_ns, self._now_ns(), bytes=written)

    def _validation(self, index: int) -> TrainedEvent:
        start_ns = self._now_ns()
        self.engine.strategy.complete_parameters()
        losses = []
        for number in range(self.settings.validation_batches):
            share = self.batches.share(number, *self.engine.groups.batch_share)
            loss = self.engine.execution.evaluate(self.engine.on_device(share))
            if loss is not None:
                losses.append(loss.float())
        self.engine.strategy.complete_parameters()
        mean = None
        if losses:
            total = torch.stack(losses).mean()
            group = self.engine.groups.data
            if group.size > 1:
                dist.all_reduce(total, group=group.process_group)
            mean = float(total) / group.size
        return TrainedEvent("validation", index, start_ns, self._now_ns(), loss=mean)

    def _now_ns(self) -> int:
        if self.engine.device.type == "cuda":
            torch.cuda.synchronize()
        return perf_counter_ns()


def _is_due(every: int, index: int) -> bool:
    return every > 0 and (index + 1) % every == 0
