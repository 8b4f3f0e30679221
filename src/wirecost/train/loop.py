"""The training loop: one iteration after another, each measured and handed on."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch
import torch.distributed as dist

from wirecost.breakdown import PeakMemory, Phase
from wirecost.corpus.tokens import Tokens
from wirecost.spec import Experiment
from wirecost.train.batches import Batches
from wirecost.train.engine import Engine, build_engine
from wirecost.train.memory import MemoryMeter
from wirecost.train.models import examples_for
from wirecost.train.periodic import Periodically, TrainedEvent, held_out
from wirecost.train.profile import profile_window
from wirecost.train.recorder import Marks, Sample


class NonFiniteLossError(RuntimeError):
    """Training diverged: the loss is NaN or infinite, and so would be everything after it."""


@dataclass(frozen=True)
class TrainedIteration:
    index: int
    warmup: bool
    loss: float | None  # the mean over this rank's share; None where another rank ends the model
    sample: Sample


MOST_MORE = 10_000
"""Iterations beyond those asked for that `min_time` may bring."""
TIMEOUT_PART = 0.8
"""Of the time that the experiment may take: later no more are begun for `min_time`."""
MAX_IN_FLIGHT = 32
"""Iterations that a device may lag behind before the host waits for it: their events take memory."""


def train(
    experiment: Experiment,
    tokens: Tokens,
    device: torch.device,
    *,
    checkpoints: Path | None = None,
    trace: Path | None = None,
    built: Callable[[Engine], object] = lambda _: None,
    peaked: Callable[[PeakMemory], object] = lambda _: None,
) -> Iterator[TrainedIteration | TrainedEvent]:
    """Trains one rank of an experiment inside an initialised process group, yielding each iteration once its
    work is done; nothing synchronizes with the device in between. Checkpoints and validation (where the experiment
    has them) come between the iterations.

    Args:
        checkpoints: where they go, and where training goes on from the newest whole one; None writes none.
        trace: where the profiled window goes (`Experiment.profile_iterations`); None profiles nothing.
        built: told of the engine before the first iteration.
        peaked: told of the peak of memory after the last iteration, where it is known; checkpoints and validation
            between iterations count.

    Raises:
        SpecError: for a workload or plan that the engine does not run.
        NonFiniteLossError: naming the iteration.
    """
    began = monotonic()
    engine = build_engine(experiment, device)
    built(engine)
    recorder = engine.recorder
    examples = examples_for(experiment.workload)
    batches, validation = (
        Batches(
            part,
            examples,
            global_batch=experiment.global_batch,
            micro_batch=experiment.micro_batch,
            seed=experiment.seed,
        )
        for part in held_out(tokens, experiment, examples.length)
    )
    saved = None
    if checkpoints is not None and (experiment.periodic.checkpoint_every or checkpoints.exists()):
        # A second of every rank's start that others need not take.
        from wirecost.train.checkpoint import Checkpoints

        saved = Checkpoints(engine, checkpoints)
    periodically = Periodically(engine, validation, saved)
    done = saved.load() if saved is not None else None
    first = 0 if done is None else done + 1
    in_flight: deque[tuple[int, Marks, torch.Tensor | None]] = deque()
    measured_ns: list[int] = []

    def settle(limit: int) -> Iterator[TrainedIteration]:
        """Hands on what has happened; waits while more than `limit` iterations have not."""
        while in_flight and (len(in_flight) > limit or recorder.clock.has_happened(in_flight[0][1].end)):
            index, marks, loss = in_flight.popleft()
            recorder.clock.wait(marks.end)
            value = None if loss is None else float(loss)
            if value is not None and not math.isfinite(value):
                raise NonFiniteLossError(
                    f"the loss is {value} at iteration {index}; lower optimizer.learning_rate or use fp32"
                )
            sample = recorder.resolve(marks)
            if index >= experiment.warmup:
                measured_ns.append(sample.end_ns - sample.start_ns)
            yield TrainedIteration(index, index < experiment.warmup, value, sample)

    def issue(index: int) -> torch.Tensor | None:
        recorder.begin()
        with recorder.phase(Phase.DATA):
            micro_batches = engine.on_device(batches.share(index, *engine.groups.batch_share))
        return engine.iteration(micro_batches)

    def profiled(number: int) -> None:
        issue(end + number)
        recorder.finish()

    def trained(index: int) -> Iterator[TrainedIteration | TrainedEvent]:
        if index == max(first, experiment.warmup):
            meter.begin()
        loss = issue(index)
        if loss is not None:
            # Reading it from the device later would wait for all that was issued since.
            loss = loss.to("cpu", non_blocking=True)
        in_flight.append((index, recorder.finish(), loss))
        yield from settle(MAX_IN_FLIGHT)
        yield from periodically.after(index)

    meter = MemoryMeter(device, dist.get_rank())
    dist.barrier()
    asked = end = max(first, experiment.warmup + experiment.iterations)
    for index in range(first, end):
        yield from trained(index)
    while experiment.min_time:
        yield from settle(0)
        left_s = TIMEOUT_PART * experiment.timeout - (monotonic() - began)
        left_s = min(left_s, experiment.min_time - sum(measured_ns) * 1e-9)
        more = _agreed(_more(left_s, measured_ns, asked + MOST_MORE - end), device)
        if not more:
            break
        for index in range(end, end + more):
            yield from trained(index)
        end += more
    if (peak := meter.peak()) is not None:
        peaked(peak)
    if trace is not None and experiment.profile_iterations:
        yield from settle(0)
        profile_window(experiment.profile_iterations, profiled, device, trace)
    engine.strategy.complete_parameters()
    yield from settle(0)


def _more(left_s: float, measured_ns: Sequence[int], most: int) -> int:
    """Iterations that fill the time, as far as can be told: hosts change their pace."""
    if left_s <= 0 or not measured_ns:
        return min(most, int(left_s > 0))
    return min(most, math.ceil(left_s * 1e9 / statistics.mean(measured_ns)))


def _agreed(number: int, device: torch.device) -> int:
    """The first rank's, on all."""
    agreed = torch.tensor([number], device=device)
    dist.broadcast(agreed, 0)
    return int(agreed.item())
