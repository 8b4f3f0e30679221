"""Sharded checkpoints through torch.distributed.checkpoint, for going on where a run stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from wirecost.errors import SpecError
from wirecost.train.engine import Engine

COMPLETE = "complete"
"""A file that names the newest whole checkpoint; it is replaced once that is written."""


class Checkpoints:
    """Checkpoints of one experiment in `folder`, of which the newest whole one is kept.

    A checkpoint holds what the optimizer steps (FP32), its moments, the loss scale and what PowerSGD carries
    over; 16-bit parameters follow from these, and all that is random from the seed and the iteration. Ranks with
    the same state (replicas) write it once between them. It is read back under the same plan on the same number
    of ranks only.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder

    def save(self, after_iteration: int) -> int:
        """Called by every rank between iterations; returns the bytes that this rank wrote."""
        target = self.folder / f"iteration-{after_iteration}"
        state = {**self._state(), "after_iteration": after_iteration, "digest": self._digest()}
        save(state, checkpoint_id=target)
        dist.barrier()
        if dist.get_rank() == 0:
            before = self._newest()
            partial = self.folder / f".{COMPLETE}"
            partial.write_text(target.name)
            partial.rename(self.folder / COMPLETE)
            if before is not None and before != target:
                shutil.rmtree(before)
        return sum(p.stat().st_size for p in target.glob(f"__{dist.get_rank()}_*.distcp"))

    def load(self) -> int | None:
        """Called by every rank before the first iteration; returns the iteration that the newest whole checkpoint
        was written after, None where there is none.

        Raises:
            SpecError: for a checkpoint of another experiment.
        """
        newest = self._newest()
        if newest is None:
            return None
        state: dict[str, Any] = {**self._state(), "after_iteration": 0, "digest": ""}
        load(state, checkpoint_id=newest)
        if state["digest"] != self._digest():
            raise SpecError(f"{newest}: a checkpoint of another experiment; give this one a directory of its own")
        stepper = self.engine.stepper
        stepper.optimizer.refresh()
        self.engine.strategy.after_step()
        self.engine.strategy.complete_parameters()
        return state["after_iteration"]

    def _newest(self) -> Path | None:
        path = self.folder / COMPLETE
        return self.folder / path.read_text() if path.exists() else None

    def _digest(self) -> str:
        """Of everything but how long the experiment is: it may be made longer."""
        experiment = self.engine.groups.experiment
        return experiment.model_copy(update={"iterations": 1, "warmup": 0}).digest

    def _state(self) -> dict[str, Any]:
        """Tensors by name, which differ from rank to rank just where their contents do."""
        engine = self.engine
        over = engine.strategy.pieces_over
        owner = f"pipeline-{engine.groups.pipeline.index}.tensor-{engine.groups.tensor.index}"
        if over is not None:
            owner += f".shard-{over.index}"
        state: dict[str, Any] = {}
        for number, tensors in enumerate(engine.stepper.optimizer.state()):
            state |= {f"{owner}.{number}.{name}": tensor for name, tensor in tensors.items()}
        if engine.stepper.scale is not None:
            state |= {"loss_scale": engine.stepper.scale.value, "good_steps": engine.stepper.scale.good_steps}
        # Each rank's own, also among replicas of the parameters.
        owner = f"rank-{engine.groups.rank}.carried"
        state |= {f"{owner}.{name}": tensor for name, tensor in engine.strategy.carried().items()}
        return state
