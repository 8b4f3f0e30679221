"""Times a stream of messages and each single message, without waiting between them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat
from time import perf_counter_ns
from typing import Protocol

from wirecost.collectives.backends.base import Repeatable

ROUNDS = 5
"""Number of rounds. A stream's time is their median, so that a single disturbance has no effect."""
MAX_MESSAGES = 1000


@dataclass
class Samples:
    """One rank's times. `rounds_ns` is each round's span; `starts_ns` and `ends_ns` are each message's, on a clock
    that all ranks share if `common_clock`, else on one of the rank's own. `drained` is whether the shaper's bucket
    was empty at the start.
    """

    per_round: int
    rounds_ns: list[int] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    common_clock: bool = True
    drained: bool = False


class Timer(Protocol):
    def measure(
        self, run: Callable[[], None], per_round: int, align: Callable[[], None], lead: int = 0
    ) -> Samples:
        """Runs ROUNDS rounds of `per_round` messages; `align` makes all ranks start together. `lead` untimed
        messages precede them, without a pause in between.
        """
        ...


class HostTimer:
    """Times calls that return when they are complete, by readings of CLOCK_MONOTONIC, which all processes of a
    machine share.

    Args:
        common_clock: False if ranks are on several machines.
    """

    def __init__(self, *, common_clock: bool = True) -> None:
        self.common_clock = common_clock

    def measure(
        self, run: Callable[[], None], per_round: int, align: Callable[[], None], lead: int = 0
    ) -> Samples:
        samples = Samples(per_round, drained=lead > 0, common_clock=self.common_clock)
        count = ROUNDS * per_round
        starts, ends = [0] * count, [0] * count
        align()
        for _ in range(lead):
            run()
        for i in range(count):
            starts[i] = perf_counter_ns()
            run()
            ends[i] = perf_counter_ns()
        samples.starts_ns, samples.ends_ns = starts, ends
        samples.rounds_ns = [ends[(k + 1) * per_round - 1] - starts[k * per_round] for k in range(ROUNDS)]
        return samples


class DeviceTimer:
    """Times calls that return before they are complete.

    Rounds are timed by the host from first launch to the end of the last, with nothing between the messages, as
    nccl-tests does. Then the same number of messages is issued with an event between each two, for the
    percentiles. An event takes device time as well, which the rounds don't contain. Each round begins with a pause
    in which a shaper's bucket refills, so `lead` has no effect.

    Args:
        batch: returns a call that issues a number of messages for a round: `one_by_one` or `captured`.
    """

    def __init__(self, batch: Callable[[Callable[[], None], int], Callable[[], None]] | None = None) -> None:
        self.batch = batch or one_by_one

    def measure(
        self, run: Callable[[], None], per_round: int, align: Callable[[], None], lead: int = 0
    ) -> Samples:
        import torch

        samples = Samples(per_round, common_clock=False)
        stream = torch.cuda.current_stream()
        issue = self.batch(run, per_round)
        for _ in range(ROUNDS):
            align()
            start = perf_counter_ns()
            issue()
            stream.synchronize()
            samples.rounds_ns.append(perf_counter_ns() - start)
        count = min(ROUNDS * per_round, MAX_MESSAGES)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        for event in events:
            event.record(stream)  # the first recording creates the event
        align()
        events[0].record(stream)
        for event in events[1:]:
            run()
            event.record(stream)
        stream.synchronize()
        at = 0
        for before, after in pairwise(events):
            took = round(before.elapsed_time(after) * 1e6)
            samples.starts_ns.append(at)
            at += took
            samples.ends_ns.append(at)
        return samples


def one_by_one(run: Callable[[], None], count: int) -> Callable[[], None]:
    """Returns a call that launches each message from the host, as an uncaptured training step does."""

    if isinstance(run, Repeatable):
        return partial(run.times, count)

    def issue() -> None:
        for _ in repeat(None, count):
            run()

    return issue


def captured(run: Callable[[], None], count: int) -> Callable[[], None]:
    """Returns a call that launches all messages as one CUDA graph, so that only the device's time remains
    (nccl-tests' -G). The graph is launched once here, because the first launch uploads it.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.current_stream()
    # NCCL's own threads call CUDA during the capture, which only this mode allows.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        one_by_one(run, count)()
    graph.replay()
    stream.synchronize()
    return graph.replay


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collects garbage once at the start, then not until the context is left. Objects from imports are frozen."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
