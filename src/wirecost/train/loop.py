"""The training loop: one iteration after another, each measured and handed on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.corpus.tokens import Tokens
from wirecost.spec import Experiment, Precision
from wirecost.train.adam import MasterAdamW
from wirecost.train.batches import Batches
from wirecost.train.clock import Recorder, Sample
from wirecost.train.models import build_model
from wirecost.train.parallel import apply_data_parallel

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}


class NonFiniteLossError(RuntimeError):
    """Training diverged: the loss is NaN or infinite, and so would be everything after it."""


@dataclass(frozen=True)
class TrainedIteration:
    index: int
    warmup: bool
    loss: float
    sample: Sample


def train(experiment: Experiment, tokens: Tokens) -> Iterator[TrainedIteration]:
    """Trains one rank of an experiment inside an initialised process group, yielding each iteration.

    Raises:
        SpecError: for a workload or plan that the engine does not run.
        NonFiniteLossError: naming the iteration.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(experiment.seed)
    model = build_model(experiment.workload).to(DTYPES[experiment.plan.precision])
    recorder = Recorder()
    gradients = apply_data_parallel(experiment.plan, model, recorder)
    optimizer = MasterAdamW(model, experiment.optimizer)
    batches = Batches(
        tokens,
        sequence_length=experiment.workload.sequence_length,
        global_batch=experiment.global_batch,
        micro_batch=experiment.micro_batch,
        seed=experiment.seed,
    )
    dist.barrier()
    for index in range(experiment.warmup + experiment.iterations):
        recorder.begin()
        with recorder.phase(Phase.DATA):
            shares = batches.share(index, rank, ranks)
        gradients.zero_grad()
        losses = []
        for number, ids in enumerate(shares):
            with gradients.micro_batch(last=number == len(shares) - 1):
                with recorder.phase(Phase.FORWARD):
                    loss = gradients.module(ids)
                with recorder.phase(Phase.BACKWARD):
                    (loss / (len(shares) * ranks)).backward()
                losses.append(loss.detach())
        gradients.after_backward()
        with recorder.phase(Phase.OPTIMIZER):
            optimizer.step()
        sample = recorder.finish()
        mean_loss = float(torch.stack(losses).mean())
        if not math.isfinite(mean_loss):
            raise NonFiniteLossError(
                f"the loss is {mean_loss} at iteration {index}; lower optimizer.learning_rate or use fp32"
            )
        yield TrainedIteration(index, index < experiment.warmup, mean_loss, sample)
