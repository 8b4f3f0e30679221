"""The engine of one rank: a model that is split and wrapped according to the plan, its execution and its
optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from wirecost.errors import SpecError
from wirecost.launch.memory import host_memory_bytes
from wirecost.spec import Experiment, Plan, Precision
from wirecost.train.checks import check_combination, check_experiment, check_plan
from wirecost.train.clock import clock_for
from wirecost.train.communicator import Communicator
from wirecost.train.compiled import apply_compile
from wirecost.train.groups import Groups
from wirecost.train.models import Batch, build_model, check_room, drawing_device
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
from wirecost.train.step import Stepper

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


@dataclass
class Engine:
    """The parts that train a model on one rank.

    Attributes:
        model: this rank's part of the model, after all transformations except data parallelism.
        partial: sums the gradients of which each tensor-parallel rank has a part.
        tied: parameters that several pipeline stages hold, or None without a pipeline.
    """

    groups: Groups
    device: torch.device
    recorder: Recorder
    model: nn.Module
    strategy: DataParallelStrategy
    partial: PartialGradients
    execution: Execution
    stepper: Stepper
    tied: TiedParameters | None

    def on_device(self, micro_batches: Iterable[Batch]) -> list[Batch]:
        """Copies micro-batches to the device. With context parallelism only this rank's part of each sequence."""
        return [
            {name: self._copied(tensor) for name, tensor in part_of_sequences(batch, self.groups.context).items()}
            for batch in micro_batches
        ]

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda":
            # A copy from memory that isn't pinned makes the host wait for the device's earlier work.
            tensor = tensor.contiguous().pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def iteration(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Trains on the micro-batches, and returns their mean loss (see `Execution.run`)."""
        loss = self.until_step(micro_batches)
        self.strategy.after_step()
        return loss

    def until_step(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Does an iteration up to the optimizer's step, which `iteration` completes."""
        self.strategy.zero_grad()
        factor = self.stepper.loss_factor(1 / (len(micro_batches) * self.groups.data.size))
        loss = self.execution.run(micro_batches, factor)
        self.strategy.after_backward()
        self.partial.sum(self.strategy.gradient_pieces())
        if self.tied is not None:
            self.tied.all_reduce(self.strategy)
        self.stepper.step()
        return loss


def build_engine(experiment: Experiment, device: torch.device) -> Engine:
    """Builds a rank's engine. Every rank calls it, inside an initialised process group.

    Every rank draws the initial weights of the whole model from the seed and keeps its part, so they don't
    depend on the plan. They are drawn on the device if it has room for all of them. Different kinds of devices
    draw different weights.

    Raises:
        SpecError: if the engine can't run the workload, the plan or the experiment.
        MemoryError: if the host can't hold the weights of the whole model.
    """
    workload, plan = experiment.workload, experiment.plan
    if problem := check_plan(plan) or check_combination(workload, plan) or check_experiment(experiment):
        raise SpecError(problem)
    check_room(experiment, device, host_memory_bytes())
    groups = Groups(experiment, dist.get_rank())
    recorder = Recorder(clock_for(device))
    torch.manual_seed(experiment.seed)
    with drawing_device(workload, device):
        full_model = build_model(workload)
    if groups.expert.size > 1:
        from wirecost.train.parallel.experts import apply_expert_parallel

        apply_expert_parallel(full_model, groups, recorder)
    if groups.tensor.size > 1:
        from wirecost.train.parallel.tensor.apply import apply_tensor_parallel

        apply_tensor_parallel(plan, full_model, groups, recorder, experiment.micro_batch)
    if groups.context.size > 1:
        from wirecost.train.parallel.context import apply_context_parallel

        apply_context_parallel(full_model, groups, recorder)
    apply_recompute(plan, full_model)
    apply_compile(plan, full_model, groups)
    model: nn.Module = full_model
    tied = None
    if plan.pipeline_parallel > 1:
        model, tied = cut(full_model, plan, groups, recorder)
    _to_precision(model, device, plan, masters=holds_masters(plan, groups))
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


def _to_precision(model: nn.Module, device: torch.device, plan: Plan, *, masters: bool) -> None:
    """Moves a model to a device and to the precision of its computation, in place.

    Args:
        masters: whether parameters stay in FP32, because the strategy casts them when it gathers them. Buffers,
            as the angles of rotary positions, are never gathered, so they always have the precision of the
            computation. A buffer in FP32 would turn the activations that it multiplies to FP32.
    """
    dtype = DTYPES[plan.precision]
    model.to(device, torch.float32 if masters else dtype)
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_floating_point():
                setattr(module, name, buffer.to(dtype))
