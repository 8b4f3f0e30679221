"""Times a section of the engine's benchmark."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wirecost.spec import Workload, validate
from wirecost.spec.presets import named

VOCABULARY = 50304
"""GPT-2's 50,257 rounded up to a multiple of 128, as in every fast trainer; the same for all sides."""

CLIPPING = 1.0
LAUNCH_BOUND = 0.9
"""Share of an iteration spent on issuing it from which on the host is the limit."""

Iteration = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Result:
    """`iteration_ms` of each timed iteration; `issue_ms` is the host's time to issue one to an idle device."""

    name: str
    iteration_ms: list[float]
    issue_ms: float
    tokens: int  # of one rank in an iteration
    flop_per_token: float
    peak_gib: float | None
    off_ms: list[float] = dataclasses.field(default_factory=list)  # measuring off
    phases_ms: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.iteration_ms)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.median_ms * 1e3

    def line(self, baseline: Result | None) -> str:
        parts = [
            f"{self.name:<34} {self.median_ms:8.1f} ms {self.tokens_per_s:9.0f} tok/s "
            f"{self.tokens_per_s * self.flop_per_token / 1e12:6.1f} TFLOP/s",
        ]
        if self.peak_gib is None:  # a CPU's own work is no launch
            parts.append("peak unknown")
        else:
            parts += [f"peak {self.peak_gib:.1f} GiB", f"host issues in {self.issue_ms:.1f} ms"]
            if self.issue_ms >= LAUNCH_BOUND * self.median_ms:
                parts.append("launch-bound")
        if baseline is not None:
            parts.append(f"{self.tokens_per_s / baseline.tokens_per_s:.3f}x plain PyTorch")
        if self.off_ms:
            off = statistics.median(self.off_ms)
            parts.append(f"measuring costs {100 * (self.median_ms / off - 1):+.2f} % (off: {off:.1f} ms)")
        parts += [f"{phase} {ms:.1f} ms" for phase, ms in self.phases_ms.items()]
        return ", ".join(parts)


def workload_of(model: str, *, tiny: bool) -> Workload:
    preset = validate(Workload, named("workload", model), model)
    changes: dict[str, Any] = {"vocab_size": VOCABULARY}
    if tiny:
        changes = {"vocab_size": 256, "layers": 2, "hidden": 32, "heads": 2, "sequence_length": 32}
    return preset.model_copy(update=changes)


def flop_per_token(workload: Workload, parameters: int) -> float:
    return 6 * parameters + 12 * workload.layers * workload.hidden * workload.sequence_length


class Section:
    """What every section shares: its arguments, device, batches and the timing."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.cuda = arguments.device == "cuda"
        self.device = torch.device("cuda", self.rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        torch.manual_seed(self.rank)
        self.workload = workload_of(arguments.model, tiny=arguments.tiny)
        self.micro_batch: int = arguments.micro_batch
        shape = (4, self.micro_batch, self.workload.sequence_length + 1)
        batches = torch.randint(0, self.workload.vocab_size, shape)
        self.batches = [{"inputs": b[:, :-1], "targets": b[:, 1:]} for b in batches]
        self.step = 0

    def next_batch(self) -> dict[str, torch.Tensor]:
        """Returns the next batch in the host's memory."""
        self.step += 1
        return self.batches[self.step % len(self.batches)]

    def batch_on_device(self) -> dict[str, torch.Tensor]:
        batch = {name: tensor.contiguous() for name, tensor in self.next_batch().items()}
        if self.cuda:
            batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, iteration: Iteration, count: int) -> list[float]:
        """Returns the milliseconds of `count` consecutive iterations between device events; the
        host runs ahead.
        """
        if not self.cuda:
            times = []
            for _ in range(count):
                start = time.perf_counter()
                iteration()
                times.append((time.perf_counter() - start) * 1e3)
            return times
        self.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            iteration()
            event.record()
        self.synchronize()
        return [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]

    def issue_ms(self, iteration: Iteration) -> float:
        times_ms = []
        for _ in range(3):
            self.synchronize()
            start = time.perf_counter()
            iteration()
            times_ms.append((time.perf_counter() - start) * 1e3)
        self.synchronize()
        return statistics.median(times_ms)

    def result(self, name: str, iteration: Iteration, parameters: int) -> Result:
        for _ in range(self.arguments.warmup):
            iteration()
        times = self.timed(iteration, self.arguments.iterations)
        return self.made(name, times, iteration, parameters)

    def made(
        self, name: str, times: list[float], iteration: Iteration, parameters: int, off: Sequence[float] = ()
    ) -> Result:
        return Result(
            name=name,
            iteration_ms=times,
            issue_ms=self.issue_ms(iteration),
            tokens=self.micro_batch * self.workload.sequence_length,
            flop_per_token=flop_per_token(self.workload, parameters),
            peak_gib=torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None,
            off_ms=list(off),
        )
