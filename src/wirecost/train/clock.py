"""Clocks: the host's for a CPU, device events for a GPU. Neither synchronizes anything.

A mark is a moment that was noted down; only `nanoseconds` turns marks into numbers, once they have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from wirecost.train.streams import on


class Clock(Protocol):
    """`asynchronous`: marks happen after the host noted them down, when the device comes to them."""

    asynchronous: bool

    def now(self) -> Any:
        """A mark at this point of the work issued so far on the current stream."""
        ...

    def after(self, work: Any, group: str, noted: Callable[[], None]) -> torch.futures.Future[Any] | None:
        """Calls `noted` where `now` is a mark of the end of `work`, an asynchronous collective of a group: at once
        (None), or before the future is complete."""
        ...

    def value_after(
        self, work: Any, group: str, noted: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        """As `after`; the future is complete then, with `value`."""
        ...

    def has_happened(self, mark: Any) -> bool: ...

    def wait(self, mark: Any) -> None:
        """Makes the host wait until a mark has happened."""
        ...

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """When marks happened, the first being an iteration's start; on the host's monotonic clock.

        To be called for one iteration after another.
        """
        ...


class HostClock:
    """CLOCK_MONOTONIC: one clock for every process of a machine, so that the ranks of emulated hosts can be
    compared without alignment."""

    asynchronous = False

    def now(self) -> int:
        return perf_counter_ns()

    def after(self, work: Any, group: str, noted: Callable[[], None]) -> torch.futures.Future[Any]:
        return self.value_after(work, group, noted, None)

    def value_after(
        self, work: Any, group: str, noted: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        def ended(future: torch.futures.Future[Any]) -> Any:
            noted()
            future.value()  # raises what the collective failed with
            return value

        return work.get_future().then(ended)

    def has_happened(self, mark: int) -> bool:
        return True

    def wait(self, mark: int) -> None:
        pass

    def nanoseconds(self, marks: Sequence[int]) -> list[int]:
        return list(marks)


class DeviceClock:
    """Device events, placed on the host's clock by one event recorded while the device was idle.

    A tensor-parallel iteration marks some 1,400 moments, and marking takes the host's time: 4 microseconds with
    the native `torch.Event`, 14 with that of `torch.cuda`, which is Python (an H200's host).

    `elapsed_time` is a 32-bit float of milliseconds: exact to well under a microsecond over one iteration, so
    longer spans are summed from iteration to iteration.

    The end of a collective is marked on a stream that waits for it, one for each group, since a group's
    collectives end in their order. (A future's `then` would take another stream of PyTorch's pool each time.
    Streams share a few hardware queues, and one that waits holds up what computes through the same queue.)
    """

    asynchronous = True

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._anchor = self.now()
        torch.cuda.synchronize()
        self._anchor_ns = perf_counter_ns()
        self._waiting: dict[str, torch.cuda.Stream] = {}

    def after(self, work: Any, group: str, noted: Callable[[], None]) -> None:
        with on(self._stream(group)):
            # The future's `wait`, since the work's would also give up the memory that the collective uses.
            work.get_future().wait()
            noted()

    def value_after(
        self, work: Any, group: str, noted: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        stream = self._stream(group)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[stream.device])
        with on(stream):
            work.get_future().wait()
            noted()
            future.set_result(value)
        return future

    def _stream(self, group: str) -> torch.cuda.Stream:
        if group not in self._waiting:
            self._waiting[group] = torch.cuda.Stream()
        return self._waiting[group]

    def now(self) -> torch.Event:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def has_happened(self, mark: torch.Event) -> bool:
        return mark.query()

    def wait(self, mark: torch.Event) -> None:
        mark.synchronize()

    def nanoseconds(self, marks: Sequence[torch.Event]) -> list[int]:
        start = marks[0]
        self._anchor_ns += round(self._anchor.elapsed_time(start) * 1e6)
        self._anchor = start
        # Spans share marks.
        elapsed = {id(mark): mark for mark in marks}
        since = {name: round(start.elapsed_time(mark) * 1e6) for name, mark in elapsed.items()}
        return [self._anchor_ns + since[id(mark)] for mark in marks]


def clock_for(device: torch.device) -> Clock:
    return DeviceClock() if device.type == "cuda" else HostClock()
