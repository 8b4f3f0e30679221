"""Sharded checkpoints with torch.distributed.checkpoint, from which training can be resumed."""

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
"""File with the name of the newest complete checkpoint. It is replaced after a checkpoint has been written."""


class Checkpoints:
    """The checkpoints of one experiment in `folder`. Only the newest complete one is kept.

    A checkpoint contains the FP32 parameters that the optimizer steps, its moments, the loss scale, and the
    errors that PowerSGD carries over. The 16-bit parameters follow from these. Random numbers follow from the
    seed and the iteration. Replicas write their common state only once. A checkpoint can be loaded only with
    the same plan and the same number of ranks.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder

    def save(self, after_iteration: int) -> int:
        """Writes a checkpoint. Every rank calls it between iterations.

        Returns:
            The bytes that this rank wrote.
        """
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
        """Loads the newest complete checkpoint. Every rank calls it before the first iteration.

        Returns:
            The last iteration before the checkpoint, or None without a checkpoint.

        Raises:
            SpecError: if the checkpoint is of another experiment.
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
        """Returns a digest of the experiment without its number of iterations, which may be increased."""
        experiment = self.engine.groups.experiment
        return experiment.model_copy(update={"iterations": 1, "warmup": 0}).digest

    def _state(self) -> dict[str, Any]:
        """Returns tensors by name. Two ranks use the same name exactly for tensors with the same contents."""
        engine = self.engine
        over = engine.strategy.pieces_over
        owner = f"pipeline-{engine.groups.pipeline.index}.tensor-{engine.groups.tensor.index}"
        if over is not None:
            owner += f".shard-{over.index}"
        if engine.groups.expert.size > 1:
            owner = f"rank-{engine.groups.rank}"  # experts have other shards than the other parameters
        state: dict[str, Any] = {}
        for number, tensors in enumerate(engine.stepper.optimizer.state()):
            state |= {f"{owner}.{number}.{name}": tensor for name, tensor in tensors.items()}
        if engine.stepper.scale is not None:
            state |= {"loss_scale": engine.stepper.scale.value, "good_steps": engine.stepper.scale.good_steps}
        # These differ between all ranks, also between replicas of the parameters.
        owner = f"rank-{engine.groups.rank}.carried"
        state |= {f"{owner}.{name}": tensor for name, tensor in engine.strategy.carried().items()}
        return state
