"""Splits a model into pipeline stages, and synchronizes parameters that several stages hold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.base import Model, Unit
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.recorder import Recorder


class Stages(nn.Module):
    """The units of a rank, under the names that they have in the whole model.

    Args:
        chunks: the units of each of the rank's stages, by their index in the whole model.
    """

    def __init__(self, chunks: list[dict[int, Unit]]) -> None:
        super().__init__()
        self.units = nn.ModuleDict({str(index): unit for chunk in chunks for index, unit in chunk.items()})
        self.names = [[str(index) for index in chunk] for chunk in chunks]

    def chunk(self, number: int) -> Iterator[nn.Module]:
        """Yields the current units of a chunk. Compiling may have replaced them."""
        for name in self.names[number]:
            yield self.units[name]

    @property
    def chunks_share(self) -> bool:
        """Whether several chunks share a parameter, so that its gradient is complete only after all of them."""
        parameters = [{p for unit in self.chunk(n) for p in unit.parameters()} for n in range(len(self.names))]
        return sum(map(len, parameters)) > len(set().union(*parameters))


def stage_of_units(model: Model, stages: int) -> list[int]:
    """Returns the stage of every unit.

    Layers are divided evenly. Units before a layer are on its stage, and units after the last layer on the last
    stage.
    """
    layers = [unit.layers for unit in _units(model)]
    share = sum(layers) // stages
    return [min(sum(layers[:n]) // share, stages - 1) for n in range(len(layers))]


def cut(model: Model, plan: Plan, groups: Groups, recorder: Recorder) -> tuple[Stages, TiedParameters]:
    """Returns this rank's part of a model. All ranks call it at the same time, with the same model."""
    ranks, rank = groups.pipeline.size, groups.pipeline.index
    stages = stage_of_units(model, ranks * plan.virtual_stages)
    tied = TiedParameters(model, [stage % ranks for stage in stages], groups, recorder)
    chunks: list[dict[int, Unit]] = [{} for _ in range(plan.virtual_stages)]
    for index, (stage, unit) in enumerate(zip(stages, _units(model), strict=True)):
        if stage % ranks == rank:
            chunks[stage // ranks][index] = unit
    return Stages(chunks), tied


class TiedParameters:
    """Parameters of which several ranks of a pipeline hold a copy, as the first and the last rank of GPT's
    embedding.

    Their gradients are summed over these ranks, so that the copies stay equal. As in Megatron-LM, this happens
    after the synchronization of data parallelism, which may run during backward. Both are sums, so the order
    doesn't matter. With ZeRO each rank has a part of the gradient, which is split at the same places on every
    stage (`into_buckets`), and only that part is sent.

    Each parameter has the attributes `tied_across_stages`, `tied_name` (its name in the whole model) and
    `tied_copy`, which is set on all ranks except the first that holds it. A norm over all parameters thus
    counts it once.
    """

    def __init__(self, model: Model, rank_of_unit: list[int], groups: Groups, recorder: Recorder) -> None:
        self.recorder = recorder
        self.over: dict[nn.Parameter, Communicator] = {}
        holders: dict[nn.Parameter, set[int]] = {}
        for rank, unit in zip(rank_of_unit, _units(model), strict=True):
            for parameter in unit.parameters():
                holders.setdefault(parameter, set()).add(rank)
        for name, parameter in model.named_parameters():
            places = sorted(holders[parameter])
            if len(places) == 1:
                continue
            for pipeline in groups.pipelines:
                group = groups.over("embedding", tuple(pipeline[place] for place in places))
                if group.index >= 0:
                    self.over[parameter] = Communicator(group, recorder)
                    parameter.tied_across_stages = True  # type: ignore[attr-defined]
                    parameter.tied_name = name  # type: ignore[attr-defined]
                    parameter.tied_copy = group.index > 0  # type: ignore[attr-defined]

    def all_reduce(self, strategy: DataParallelStrategy) -> None:
        """Sums the gradients of the copies. It must be called between `after_backward` and the step."""
        if self.over:
            with self.recorder.phase(Phase.EMBEDDING_SYNC):
                for gradient, over in self._gradients(strategy):
                    over.all_reduce(gradient)

    def _gradients(self, strategy: DataParallelStrategy) -> list[tuple[torch.Tensor, Communicator]]:
        pieces = {p: gradient for p, gradient in strategy.gradient_pieces() if p in self.over}
        # The order is that of the whole model, because the order of the pieces differs between stages.
        return [(pieces[p], over) for p, over in self.over.items() if p in pieces]


def _units(model: Model) -> list[Unit]:
    return [unit for unit in model.units if isinstance(unit, Unit)]
