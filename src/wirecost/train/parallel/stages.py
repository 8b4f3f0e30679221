"""A model cut into pipeline stages, and the parameters that several stages hold."""

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
    """A rank's units, under the names that they have in the whole model, in `chunks`: one for each of the rank's
    stages, the first stage's first."""

    def __init__(self, chunks: list[dict[int, Unit]]) -> None:
        super().__init__()
        self.units = nn.ModuleDict({str(index): unit for chunk in chunks for index, unit in chunk.items()})
        self.names = [[str(index) for index in chunk] for chunk in chunks]

    def chunk(self, number: int) -> Iterator[nn.Module]:
        """A chunk's units as they are now (compiling replaces them)."""
        for name in self.names[number]:
            yield self.units[name]

    @property
    def chunks_share(self) -> bool:
        """Whether a parameter is in several chunks: its gradient is whole only after all of them."""
        seen = [{p for unit in self.chunk(n) for p in unit.parameters()} for n in range(len(self.names))]
        return sum(map(len, seen)) > len(set().union(*seen))


def stage_of_units(model: Model, stages: int) -> list[int]:
    """The stage of every unit: layers shared out evenly, what comes before a layer goes with it, what comes after
    the last one is on the last stage."""
    layers = [unit.layers for unit in _units(model)]
    share = sum(layers) // stages
    return [min(sum(layers[:n]) // share, stages - 1) for n in range(len(layers))]


def cut(model: Model, plan: Plan, groups: Groups, recorder: Recorder) -> tuple[Stages, TiedParameters]:
    """This rank's part of a model. To be called by every rank at once, with the same model."""
    ranks, mine = groups.pipeline.size, groups.pipeline.index
    stages = stage_of_units(model, ranks * plan.virtual_stages)
    tied = TiedParameters(model, [stage % ranks for stage in stages], groups, recorder)
    chunks: list[dict[int, Unit]] = [{} for _ in range(plan.virtual_stages)]
    for index, (stage, unit) in enumerate(zip(stages, _units(model), strict=True)):
        if stage % ranks == mine:
            chunks[stage // ranks][index] = unit
    return Stages(chunks), tied


class TiedParameters:
    """Parameters of which several ranks of a pipeline hold a copy (GPT's embedding on the first and the last):
    their gradients are summed over those ranks, so that equal copies stay equal.

    As in Megatron-LM that comes after data parallelism's synchronization, which may run while backward does. Both
    are sums, so the order does not matter; with ZeRO each rank has a part of the gradient, cut at the same places
    on every stage (`into_buckets`), and only that part moves.

    Each is tagged: `tied_across_stages`; `tied_name`, its name in the whole model; `tied_copy` on all ranks
    but the first holder (a norm over all parameters counts it once).
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
                group = groups.of("embedding", tuple(pipeline[place] for place in places))
                if group.index >= 0:
                    self.over[parameter] = Communicator(group, recorder)
                    parameter.tied_across_stages = True  # type: ignore[attr-defined]
                    parameter.tied_name = name  # type: ignore[attr-defined]
                    parameter.tied_copy = group.index > 0  # type: ignore[attr-defined]

    def all_reduce(self, strategy: DataParallelStrategy) -> None:
        """To be called between `after_backward` and the step."""
        if self.over:
            with self.recorder.phase(Phase.EMBEDDING_SYNC):
                for gradient, over in self._gradients(strategy):
                    over.all_reduce(gradient)

    def _gradients(self, strategy: DataParallelStrategy) -> list[tuple[torch.Tensor, Communicator]]:
        pieces = {p: gradient for p, gradient in strategy.gradient_pieces() if p in self.over}
        # In the order of the whole model: stages have them in orders of their own.
        return [(pieces[p], over) for p, over in self.over.items() if p in pieces]


def _units(model: Model) -> list[Unit]:
    return [unit for unit in model.units if isinstance(unit, Unit)]
