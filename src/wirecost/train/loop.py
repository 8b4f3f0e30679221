"""The training loop: one iteration after another, each measured and handed on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.corpus.tokens import Tokens
from wirecost.spec import Experiment, Precision
from wirecost.train.adam import MasterAdamW
from wirecost.train.batches import Batches
from wirecost.train.clock import clock_for
from wirecost.train.models import build_model
from wirecost.train.parallel import apply_data_parallel
from wirecost.train.recorder import Marks, Recorder, Sample

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}


class NonFiniteLossError(RuntimeError):
    """Training diverged: the loss is NaN or infinite, and so would be everything after it."""


@dataclass(frozen=True)
class TrainedIteration:
    index: int
    warmup: bool
    loss: float
    sample: Sample


MAX_IN_FLIGHT = 32
"""Iterations that a device may lag behind before the host waits for it: their events take memory."""


def train(experiment: Experiment, tokens: Tokens, device: torch.device) -> Iterator[TrainedIteration]:
    """Trains one rank of an experiment inside an initialised process group, yielding each iteration once its
    work is done; nothing synchronizes with the device in between.

    Raises:
        SpecError: for a workload or plan that the engine does not run.
        NonFiniteLossError: naming the iteration.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(experiment.seed)
    model = build_model(experiment.workload).to(device, DTYPES[experiment.plan.precision])
    recorder = Recorder(clock_for(device))
    gradients = apply_data_parallel(experiment.plan, model, recorder)
    optimizer = MasterAdamW(model, experiment.optimizer)
    batches = Batches(
        tokens,
        sequence_length=experiment.workload.sequence_length,
        global_batch=experiment.global_batch,
        micro_batch=experiment.micro_batch,
        seed=experiment.seed,
    )
    in_flight: deque[tuple[int, Marks, torch.Tensor]] = deque()

    def settle(limit: int) -> Iterator[TrainedIteration]:
        """Hands on what has happened; waits while more than `limit` iterations have not."""
        while in_flight and (len(in_flight) > limit or recorder.clock.has_happened(in_flight[0][1].end)):
            index, marks, loss = in_flight.popleft()
            value = float(loss)  # waits for the iteration's loss, so that its marks have happened
            if device.type == "cuda":
                marks.end.synchronize()
            if not math.isfinite(value):
                raise NonFiniteLossError(
                    f"the loss is {value} at iteration {index}; lower optimizer.learning_rate or use fp32"
                )
            yield TrainedIteration(index, index < experiment.warmup, value, recorder.resolve(marks))

    dist.barrier()
    for index in range(experiment.warmup + experiment.iterations):
        recorder.begin()
        with recorder.phase(Phase.DATA):
            shares = [ids.to(device, non_blocking=True) for ids in batches.share(index, rank, ranks)]
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
        in_flight.append((index, recorder.finish(), torch.stack(losses).mean()))
        yield from settle(MAX_IN_FLIGHT)
    yield from settle(0)
