"""The training loop, which yields every iteration with its measurements."""

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
from wirecost.spec.graphs import may_replay
from wirecost.train.batches import Batches
from wirecost.train.engine import Engine, build_engine
from wirecost.train.graphs import EAGER_ITERATIONS, graphs_for, is_launch_bound, use_side_stream
from wirecost.train.memory import MemoryMeter
from wirecost.train.models import Batch, examples_for
from wirecost.train.periodic import PeriodicTasks, TrainedEvent, split_tokens
from wirecost.train.profile import profile_window
from wirecost.train.recorder import Marks, Sample


class NonFiniteLossError(RuntimeError):
    """Training diverged: the loss is NaN or infinite, and so would be everything after it."""


@dataclass(frozen=True)
class TrainedIteration:
    """One iteration of one rank.

    Attributes:
        loss: mean loss over this rank's share of the batch. None on ranks without the last pipeline stage.
    """

    index: int
    warmup: bool
    loss: float | None
    sample: Sample


MAX_EXTRA_ITERATIONS = 10_000
"""Largest number of iterations that are added to reach `min_time`."""
TIMEOUT_FRACTION = 0.8
"""Fraction of the experiment's timeout after which no more iterations are added to reach `min_time`."""
MAX_IN_FLIGHT = 32
"""Number of iterations that a device may lag behind before the host waits for it. Their events take memory."""


def train(
    experiment: Experiment,
    tokens: Tokens,
    device: torch.device,
    *,
    checkpoints: Path | None = None,
    trace: Path | None = None,
    on_engine: Callable[[Engine], object] = lambda _: None,
    on_peak_memory: Callable[[PeakMemory], object] = lambda _: None,
) -> Iterator[TrainedIteration | TrainedEvent]:
    """Trains one rank of an experiment inside an initialised process group.

    It yields each iteration after its work is done, and never synchronizes with the device between iterations.
    Checkpoints and validation come between the iterations, if the experiment has them.

    Args:
        tokens: the corpus, (tokens,).
        checkpoints: directory of the checkpoints. Training resumes after the newest complete one. None writes
            none.
        trace: file for the trace of the profiled window (`Experiment.profile_iterations`). None profiles nothing.
        on_engine: called with the engine before the first iteration.
        on_peak_memory: called with the peak memory after the last iteration, if it is known. The peak includes
            checkpoints and validation between iterations.

    Raises:
        SpecError: if the engine can't run the workload, the plan or the experiment.
        NonFiniteLossError: if the loss isn't finite. The message names the iteration.
    """
    started_s = monotonic()
    if may_replay(experiment):
        use_side_stream(device)
    engine = build_engine(experiment, device)
    on_engine(engine)
    loop = _Loop(engine, tokens, checkpoints)
    dist.barrier()
    requested = end = max(loop.first, loop.warmup + experiment.iterations)
    yield from loop.iterations(loop.first, end)
    if loop.warmup + experiment.iterations > end:
        # A capture of graphs took one more iteration to warm up.
        requested = loop.warmup + experiment.iterations
        yield from loop.iterations(end, requested)
        end = requested
    while experiment.min_time:
        yield from loop.settle(0)
        remaining_s = TIMEOUT_FRACTION * experiment.timeout - (monotonic() - started_s)
        remaining_s = min(remaining_s, experiment.min_time - sum(loop.measured_ns) * 1e-9)
        extra = _extra_iterations(remaining_s, loop.measured_ns, requested + MAX_EXTRA_ITERATIONS - end)
        extra = _agreed(extra, device)
        if not extra:
            break
        yield from loop.iterations(end, end + extra)
        end += extra
    if (peak := loop.meter.peak()) is not None:
        on_peak_memory(peak)
    if trace is not None and experiment.profile_iterations:
        yield from loop.settle(0)
        profile_window(experiment.profile_iterations, lambda n: loop.unmeasured(end + n), device, trace)
    engine.strategy.complete_parameters()
    yield from loop.settle(0)


class _Loop:
    """Issues the iterations of one rank, and settles them after the device has done them.

    Attributes:
        first: index of the first iteration. It isn't 0 if a checkpoint was loaded.
        graphs: the graphs that may be captured, or None.
        measured_ns: durations of the settled iterations after warm-up.
    """

    def __init__(self, engine: Engine, tokens: Tokens, checkpoints: Path | None) -> None:
        experiment = engine.groups.experiment
        self.engine = engine
        self.recorder = engine.recorder
        self.warmup = experiment.warmup
        examples = examples_for(experiment.workload)
        self.batches, validation = (
            Batches(
                part,
                examples,
                global_batch=experiment.global_batch,
                micro_batch=experiment.micro_batch,
                seed=experiment.seed,
            )
            for part in split_tokens(tokens, experiment, examples.length)
        )
        saved = None
        if checkpoints is not None and (experiment.periodic.checkpoint_every or checkpoints.exists()):
            # The import takes a second of every rank's start, which other runs don't need.
            from wirecost.train.checkpoint import Checkpoints

            saved = Checkpoints(engine, checkpoints)
        self.periodic = PeriodicTasks(engine, validation, saved)
        last_saved = saved.load() if saved is not None else None
        self.first = 0 if last_saved is None else last_saved + 1
        self.graphs = graphs_for(engine)
        if self.graphs is not None:
            # Measured iterations are all replayed, or none is.
            eager = EAGER_ITERATIONS + (1 if experiment.plan.graphs else 0)
            self.warmup = max(self.warmup, self.first + eager)
        self._last: Sample | None = None
        self.meter = MemoryMeter(engine.device, dist.get_rank())
        self.measured_ns: list[int] = []
        self._in_flight: deque[tuple[int, Marks, torch.Tensor | None]] = deque()

    def iterations(self, start: int, end: int) -> Iterator[TrainedIteration | TrainedEvent]:
        """Trains the iterations from `start` to `end` - 1, and yields those that are settled meanwhile."""
        for index in range(start, end):
            if self.graphs is not None and index == self.first + EAGER_ITERATIONS:
                yield from self.settle(0)
                self._capture_if_held_up(index)
            if self.graphs:
                yield from self.settle(len(self.graphs) - 1)
            elif index == max(self.first, self.warmup):
                self.meter.begin()
            loss = self._issue(index)
            if loss is not None:
                # Reading the loss from the device later would wait for all work that was issued since.
                loss = loss.to("cpu", non_blocking=True)
            self._in_flight.append((index, self.recorder.finish(), loss))
            yield from self.settle(MAX_IN_FLIGHT)
            yield from self.periodic.after(index)

    def settle(self, limit: int) -> Iterator[TrainedIteration]:
        """Yields the iterations that the device has done, and waits while more than `limit` are in flight."""
        in_flight, clock = self._in_flight, self.recorder.clock
        while in_flight and (len(in_flight) > limit or clock.has_happened(in_flight[0][1].end)):
            index, marks, loss = in_flight.popleft()
            clock.wait(marks.end)
            value = None if loss is None else float(loss)
            if value is not None and not math.isfinite(value):
                raise NonFiniteLossError(
                    f"the loss is {value} at iteration {index}; lower optimizer.learning_rate or use fp32"
                )
            sample = self._last = self.recorder.resolve(marks)
            if index >= self.warmup:
                self.measured_ns.append(sample.end_ns - sample.start_ns)
            yield TrainedIteration(index, index < self.warmup, value, sample)

    def unmeasured(self, index: int) -> None:
        """Trains an iteration whose measurements are dropped."""
        self._issue(index)
        self.recorder.finish()

    def _issue(self, index: int) -> torch.Tensor | None:
        self.recorder.begin()
        with self.recorder.phase(Phase.DATA):
            micro_batches = self._micro_batches(index)
        if self.graphs:
            return self.graphs.replay(micro_batches)
        return self.engine.iteration(micro_batches)

    def _capture_if_held_up(self, index: int) -> None:
        """Captures graphs if the plan has them, or if the host holds up the device of any rank."""
        assert self.graphs is not None
        held_up = self._last is not None and is_launch_bound(self._last)
        if self.engine.groups.experiment.plan.graphs or _any(held_up, self.engine.device):
            self.warmup = max(self.warmup, index + 1)
            self.meter.begin()  # replays use the memory that the capture allocates
            self.graphs.capture(self._micro_batches(index))
        else:
            self.graphs = None

    def _micro_batches(self, index: int) -> list[Batch]:
        """Returns this rank's micro-batches of an iteration on the device."""
        return self.engine.on_device(self.batches.share(index, *self.engine.groups.batch_share))


def _extra_iterations(remaining_s: float, measured_ns: Sequence[int], limit: int) -> int:
    """Returns an estimate of the number of iterations that fill the remaining time. The pace of hosts varies."""
    if remaining_s <= 0 or not measured_ns:
        return min(limit, int(remaining_s > 0))
    return min(limit, math.ceil(remaining_s * 1e9 / statistics.mean(measured_ns)))


def _any(truth: bool, device: torch.device) -> bool:
    """Returns whether `truth` holds on any rank."""
    count = torch.tensor([int(truth)], device=device)
    dist.all_reduce(count)
    return bool(count.item())


def _agreed(number: int, device: torch.device) -> int:
    """Returns the first rank's `number` on all ranks."""
    agreed = torch.tensor([number], device=device)
    dist.broadcast(agreed, 0)
    return int(agreed.item())
