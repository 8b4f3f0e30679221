"""One rank's engine: a model, cut and wrapped as the plan says, and what runs and steps it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from wirecost.errors import SpecError
from wirecost.spec import Experiment, Precision
from wirecost.train.clock import clock_for
from wirecost.train.communicator import Communicator
from wirecost.train.compiled import apply_compile
from wirecost.train.groups import Groups
from wirecost.train.models import Batch, build_model, drawing_device
from wirecost.train.parallel import (
    DataParallelStrategy,
    Execution,
    apply_data_parallel,
    holds_masters,
)
from wirecost.train.parallel.pipeline import PipelineExecution
from wirecost.train.parallel.plain import PlainExecution
from wirecost.train.parallel.sequences import part_of_sequences
from wirecost.train.parallel.stages import Stages, TiedParameters, cut
from wirecost.train.parallel.tensor import PartialGradients
from wirecost.train.recompute import apply_recompute
from wirecost.train.recorder import Recorder
from wirecost.train.refusals import misfit, mismatch, unsupported
from wirecost.train.step import Stepper

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


@dataclass
class Engine:
    """`model` is what this rank holds of the model, after every transformation but data parallelism's."""

    groups: Groups
    device: torch.device
    recorder: Recorder
    model: nn.Module
    strategy: DataParallelStrategy
    partial: PartialGradients
    execution: Execution
    stepper: Stepper
    tied: TiedParameters | None  # over the stages of a pipeline

    def on_device(self, micro_batches: Iterable[Batch]) -> list[Batch]:
        """This rank's part of micro-batches: of every sequence, under context parallelism."""
        return [
            {name: self._copied(tensor) for name, tensor in part_of_sequences(batch, self.groups.context).items()}
            for batch in micro_batches
        ]

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda":
            # From memory that isn't pinned, a copy would make the host wait for the device's earlier work.
            tensor = tensor.contiguous().pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def iteration(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Trains on the micro-batches; returns their mean loss (see `Execution.run`)."""
        self.strategy.zero_grad()
        factor = self.stepper.loss_factor(1 / (len(micro_batches) * self.groups.data.size))
        loss = self.execution.run(micro_batches, factor)
        self.strategy.after_backward()
        self.partial.sum(self.strategy.gradient_pieces())
        if self.tied is not None:
            self.tied.all_reduce(self.strategy)
        self.stepper.step()
        self.strategy.after_step()
        return loss


def build_engine(experiment: Experiment, device: torch.device) -> Engine:
    """Builds a rank's engine; to be called by every rank, inside an initialised process group.

    Every rank draws the whole model's initial weights from the seed and keeps its part: they do not depend on
    the plan. They are drawn on the device where that has room for all of them; another kind of device draws
    others.

    Raises:
        SpecError: for a workload or plan that the engine does not run.
    """
    workload, plan = experiment.workload, experiment.plan
    if reason := unsupported(plan) or mismatch(workload, plan) or misfit(experiment):
        raise SpecError(reason)
    groups = Groups(experiment, dist.get_rank())
    recorder = Recorder(clock_for(device))
    torch.manual_seed(experiment.seed)
    with drawing_device(workload, device):
        whole = build_model(workload)
    if groups.tensor.size > 1:
        from wirecost.train.parallel.tensor.apply import apply_tensor_parallel

        apply_tensor_parallel(plan, whole, groups, recorder)
    if groups.context.size > 1:
        from wirecost.train.parallel.context import apply_context_parallel

        apply_context_parallel(whole, groups, recorder)
    apply_recompute(plan, whole)
    apply_compile(plan, whole, groups)
    model: nn.Module = whole
    tied = None
    if plan.pipeline_parallel > 1:
        model, tied = cut(whole, plan, groups, recorder)
    model.to(device, torch.float32 if holds_masters(plan, groups) else DTYPES[plan.precision])
    partial = PartialGradients(Communicator(groups.tensor, recorder))
    strategy = apply_data_parallel(plan, model, groups, recorder)
    execution: Execution = PlainExecution(strategy, recorder)
    if isinstance(model, Stages):
        execution = PipelineExecution(model, plan, groups, strategy, recorder, device)
    return Engine(
        groups,
        device,
        recorder,
        model,
        strategy,
        partial,
        execution,
        Stepper(strategy, experiment.optimizer, plan.precision, groups, recorder),
        tied,
    )
