"""Times a stream of messages, each of them, without waiting for any."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter_ns
from typing import Protocol

ROUNDS = 5
"""A stream's time is the median over so many rounds, so that one disturbance does not count."""
MAX_MESSAGES = 1000


@dataclass
class Samples:
    """One rank's times. `rounds_ns` is each round's span; `starts_ns` and `ends_ns` are each message's, on a
    clock that all ranks share if `common_clock`, else on one of the rank's own.
    """

    per_round: int
    rounds_ns: list[int] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    common_clock: bool = True


class Timer(Protocol):
    def measure(self, run: Callable[[], None], per_round: int, align: Callable[[], None]) -> Samples:
        """Runs ROUNDS rounds of `per_round` messages; `align` lets all ranks start together."""
        ...


class HostTimer:
    """For calls that return when they are done: two readings of CLOCK_MONOTONIC around each, which all
    processes of a machine share."""

    def measure(self, run: Callable[[], None], per_round: int, align: Callable[[], None]) -> Samples:
        samples = Samples(per_round)
        count = ROUNDS * per_round
        starts, ends = [0] * count, [0] * count
        with _no_garbage_collection():
            align()
            for i in range(count):
                starts[i] = perf_counter_ns()
                run()
                ends[i] = perf_counter_ns()
        samples.starts_ns, samples.ends_ns = starts, ends
        samples.rounds_ns = [ends[(k + 1) * per_round - 1] - starts[k * per_round] for k in range(ROUNDS)]
        return samples


class DeviceTimer:
    """For calls that return before they are done.

    Rounds are timed by the host from first launch to the end of the last, with nothing between the messages,
    as nccl-tests does. Then as many messages again have an event between each two: those are the percentiles.
    An event takes the device some time as well, which the rounds are free of.
    """

    def measure(self, run: Callable[[], None], per_round: int, align: Callable[[], None]) -> Samples:
        import torch

        samples = Samples(per_round, common_clock=False)
        stream = torch.cuda.current_stream()
        with _no_garbage_collection():
            for _ in range(ROUNDS):
                align()
                start = perf_counter_ns()
                for _ in range(per_round):
                    run()
                stream.synchronize()
                samples.rounds_ns.append(perf_counter_ns() - start)
            count = min(ROUNDS * per_round, MAX_MESSAGES)
            events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
            for event in events:
                event.record(stream)  # the first recording creates it
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


class _no_garbage_collection:
    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
