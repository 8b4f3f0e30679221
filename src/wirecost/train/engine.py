"""One rank's engine: a model, cut and wrapped as the plan says, and what runs and steps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from wirecost.errors import SpecError
from wirecost.spec import Experiment, Precision
from wirecost.train.clock import clock_for
from wirecost.train.groups import Groups
from wirecost.train.models import Batch, Model, build_model
from wirecost.train.parallel import (
    DataParallelStrategy,
    Execution,
    apply_data_parallel,
    holds_masters,
    misfit,
    mismatch,
    unsupported,
)
from wirecost.train.parallel.pipeline import PipelineExecution
from wirecost.train.parallel.plain import PlainExecution
from wirecost.train.parallel.stages import Stages, TiedParameters, cut
from wirecost.train.recorder import Recorder
from wirecost.train.step import Stepper

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


@dataclass
class Engine:
    """`model` is what this rank holds of the model, after every transformation but data parallelism's."""

    groups: Groups
    recorder: Recorder
    model: nn.Module
    strategy: DataParallelStrategy
    execution: Execution
    stepper: Stepper
    tied: TiedParameters | None  # over the stages of a pipeline

    def iteration(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Trains on the micro-batches; returns their mean loss (see `Execution.run`)."""
        self.strategy.zero_grad()
        factor = self.stepper.loss_factor(1 / (len(micro_batches) * self.groups.data.size))
        loss = self.execution.run(micro_batches, factor)
        self.strategy.after_backward()
        if self.tied is not None:
            self.tied.all_reduce(self.strategy)
        self.stepper.step()
        self.strategy.after_step()
        return loss


def build_engine(experiment: Experiment, device: torch.device) -> Engine:
    """Builds a rank's engine; to be called by every rank, inside an initialised process group.

    Every rank draws the whole model's initial weights from the seed and keeps its part: they do not depend on
    the plan.

    Raises:
        SpecError: for a workload or plan that the engine does not run.
    """
    workload, plan = experiment.workload, experiment.plan
    if reason := unsupported(plan) or mismatch(workload, plan) or misfit(experiment):
        raise SpecError(reason)
    groups = Groups(experiment, dist.get_rank())
    recorder = Recorder(clock_for(device))
    torch.manual_seed(experiment.seed)
    dtype = torch.float32 if holds_masters(plan, groups) else DTYPES[plan.precision]
    model: nn.Module = build_model(workload)
    tied = None
    if plan.pipeline_parallel > 1:
        assert isinstance(model, Model)
        model, tied = cut(model, plan, groups, recorder)
    model.to(device, dtype)
    strategy = apply_data_parallel(plan, model, groups, recorder)
    execution: Execution = PlainExecution(strategy, recorder)
    if isinstance(model, Stages):
        execution = PipelineExecution(model, plan, groups, strategy, recorder, device)
    return Engine(
        groups,
        recorder,
        model,
        strategy,
        execution,
        Stepper(strategy, experiment.optimizer, plan.precision, groups, recorder),
        tied,
    )
