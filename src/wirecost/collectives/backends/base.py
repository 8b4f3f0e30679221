"""The interface of a communication library that can be measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


class Communicator(Protocol):
    """A process group as seen by one of its ranks. Rank numbers are the group's own, 0..size-1.

    Tensors are flat. A call is in place if `receive` and `send` are one tensor (for all-gather and reduce-scatter,
    if the smaller is a part of the larger). A call may return before its work is done; the work runs in order on
    the current stream, and `synchronize` waits for all of it.
    """

    rank: int
    size: int

    def all_reduce(self, receive: torch.Tensor, send: torch.Tensor) -> None: ...
    def all_gather(self, receive: torch.Tensor, send: torch.Tensor) -> None: ...
    def reduce_scatter(self, receive: torch.Tensor, send: torch.Tensor) -> None: ...
    def broadcast(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None: ...
    def reduce(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None: ...
    def all_to_all(self, receive: torch.Tensor, send: torch.Tensor) -> None: ...
    def exchange(self, receive: torch.Tensor, send: torch.Tensor, *, to: int, source: int) -> None: ...
    def send(self, buffer: torch.Tensor, to: int) -> None: ...
    def receive(self, buffer: torch.Tensor, source: int) -> None: ...

    def recorded(self, body: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that repeats the calls that `body` makes, with as little host time as possible."""
        ...

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        ...

    def synchronize(self) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Repeatable(Protocol):
    """A call that can be repeated with less host time than a loop takes."""

    def times(self, count: int) -> None: ...


class Recorder:
    """Implements `recorded` for a communicator whose methods pass every call to `_do`."""

    _recording: list[Callable[[], object]] | None = None

    def _do(self, call: Callable[[], object]) -> None:
        if self._recording is None:
            call()
        else:
            self._recording.append(call)

    def recorded(self, body: Callable[[], None]) -> Callable[[], None]:
        self._recording = []
        try:
            body()
            calls = tuple(self._recording)
        finally:
            self._recording = None
        if len(calls) == 1:
            return calls[0]  # type: ignore[return-value]

        def run() -> None:
            for call in calls:
                call()

        return run
