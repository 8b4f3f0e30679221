"""Clocks that don't synchronize: the host's clock for a CPU, device events for a GPU.

A mark is a recorded point in the issued work. After the work has reached it, `nanoseconds` returns its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from wirecost.train.streams import use_stream


class Clock(Protocol):
    """A clock that records marks.

    Attributes:
        asynchronous: whether the device reaches marks after the host has recorded them.
    """

    asynchronous: bool

    def now(self) -> Any:
        """Returns a mark at the end of the work that has been issued on the current stream."""
        ...

    def after(self, work: Any, group: str, record_end: Callable[[], None]) -> torch.futures.Future[Any] | None:
        """Calls `record_end` such that `now` in it marks the end of a collective.

        Args:
            work: the asynchronous collective.
            group: the name of its group.

        Returns:
            None if `record_end` has been called, or a future that completes after it is called.
        """
        ...

    def value_after(
        self, work: Any, group: str, record_end: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        """Calls `record_end` as `after` does, and returns a future that then completes with `value`."""
        ...

    def has_happened(self, mark: Any) -> bool:
        """Returns whether the work has reached a mark."""
        ...

    def wait(self, mark: Any) -> None:
        """Makes the host wait until the work has reached a mark."""
        ...

    def make_replayable(self) -> None:
        """Records further marks such that a CUDA graph can capture them."""
        ...

    def join(self) -> None:
        """Makes the current stream wait for the streams on which the clock marks ends of collectives."""
        ...

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """Returns the times of an iteration's marks in nanoseconds of the host's monotonic clock.

        It must be called for one iteration after another. The first mark is the iteration's start.
        """
        ...


class HostClock:
    """The host's CLOCK_MONOTONIC. All processes of a machine share it, so ranks of emulated hosts need no
    alignment."""

    asynchronous = False

    def now(self) -> int:
        return perf_counter_ns()

    def after(self, work: Any, group: str, record_end: Callable[[], None]) -> torch.futures.Future[Any]:
        return self.value_after(work, group, record_end, None)

    def value_after(
        self, work: Any, group: str, record_end: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        def ended(future: torch.futures.Future[Any]) -> Any:
            record_end()
            future.value()  # raises the collective's error
            return value

        return work.get_future().then(ended)

    def has_happened(self, mark: int) -> bool:
        return True

    def wait(self, mark: int) -> None:
        pass

    def make_replayable(self) -> None:
        pass

    def join(self) -> None:
        pass

    def nanoseconds(self, marks: Sequence[int]) -> list[int]:
        return list(marks)


class DeviceClock:
    """Device events. One event that was recorded while the device was idle aligns them with the host's clock.

    A tensor-parallel iteration has about 1,400 marks, and each of them takes time on the host. On the host of
    an H200, the native `torch.Event` takes 4 microseconds and `torch.cuda.Event`, which is written in Python,
    14.

    `elapsed_time` returns milliseconds as a 32-bit float, which is exact to well below a microsecond within an
    iteration. Longer times are summed over the iterations.

    The end of a collective is marked on a stream that waits for it. Each group has one such stream, because the
    collectives of a group end in their order. `then` of a future would take another stream of PyTorch's pool
    each time. Streams share a few hardware queues, and a waiting stream delays computation in the same queue.

    In a graph a mark is beside the work: no work waits for it. In line, the marks of a tensor-parallel iteration
    of GPT-1.3B took 1 to 3 % of it on two H200. Beside it they take none.
    """

    asynchronous = True

    def __init__(self) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._marking: dict[int, torch.cuda.Stream] = {}  # by the stream that they mark
        self._replayable = False
        self._captured: list[Any] = []  # a graph records its events as long as it exists
        self._align()

    def _align(self) -> None:
        """Aligns the device's events with the host's clock."""
        torch.cuda.synchronize()
        self._anchor = self.now()
        torch.cuda.synchronize()
        self._anchor_ns = perf_counter_ns()

    def make_replayable(self) -> None:
        """Records further marks such that a CUDA graph can capture them. Each replay then records them again.

        All earlier marks must have been read.
        """
        self._replayable = True
        self._align()

    def after(self, work: Any, group: str, record_end: Callable[[], None]) -> None:
        with use_stream(self._stream(group)):
            # `work.wait` isn't used, because it would also release the memory that the collective uses.
            work.get_future().wait()
            record_end()

    def value_after(
        self, work: Any, group: str, record_end: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        stream = self._stream(group)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[stream.device])
        with use_stream(stream):
            work.get_future().wait()
            record_end()
            future.set_result(value)
        return future

    def _stream(self, group: str) -> torch.cuda.Stream:
        if group not in self._streams:
            self._streams[group] = torch.cuda.Stream()
        return self._streams[group]

    def join(self) -> None:
        """Makes the current stream wait for the streams of marks. A capture needs that before it ends."""
        for stream in (*self._streams.values(), *self._marking.values()):
            torch.cuda.current_stream().wait_stream(stream)

    def now(self) -> Any:
        if not self._replayable:
            event = torch.Event(self._device, enable_timing=True)
            event.record()
            return event
        # Only this kind of event becomes a node of a graph. Others order the streams of the capture. It can't be
        # compared with the native kind.
        external: Any = torch.cuda.Event(enable_timing=True, external=True)
        if torch.cuda.is_current_stream_capturing():
            self._captured.append(external)
            with use_stream(self._beside()):
                external.record()
        else:
            external.record()
        return external

    def _beside(self) -> torch.cuda.Stream:
        """Returns a stream that continues at the end of the current one, and for which that one doesn't wait."""
        current = torch.cuda.current_stream()
        if current in self._streams.values():
            return current
        if current.stream_id not in self._marking:
            self._marking[current.stream_id] = torch.cuda.Stream()
        beside = self._marking[current.stream_id]
        beside.wait_stream(current)
        return beside

    def has_happened(self, mark: Any) -> bool:
        return mark.query()

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        start = marks[0]
        self._anchor_ns += round(self._anchor.elapsed_time(start) * 1e6)
        self._anchor = start
        # Spans share marks, and each mark's time is read only once.
        distinct = {id(mark): mark for mark in marks}
        since_start_ns = {key: round(start.elapsed_time(mark) * 1e6) for key, mark in distinct.items()}
        return [self._anchor_ns + since_start_ns[id(mark)] for mark in marks]


def clock_for(device: torch.device) -> Clock:
    """Returns the clock of a device."""
    return DeviceClock() if device.type == "cuda" else HostClock()
