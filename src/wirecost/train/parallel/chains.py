"""Chains of dependent collectives that run while backward computes.

Examples are a reduce-scatter followed by an all-reduce, and quantization followed by an exchange, a sum and a
gather. A chain is a generator that yields each collective whose end it needs to continue. `rounds` is the
number of collectives. The host never waits for the last one before `finish`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Protocol

import torch

from wirecost.breakdown import Phase
from wirecost.train.pending import Pending
from wirecost.train.recorder import Recorder
from wirecost.train.streams import use_stream

Chain = Generator[Pending, None, None]


class Chains(Protocol):
    """The chains of one strategy. Every rank starts them in the same order."""

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        """Starts a chain.

        Args:
            rounds: the number of its collectives.
            keep: memory that the chain uses. The reference is kept until the chain has ended.
        """
        ...

    def finish(self) -> None:
        """Makes the work that follows wait for all chains."""
        ...


class HostChains:
    """Chains on a CPU. Waiting counts as GRAD_SYNC.

    The next collective of a chain is issued when another chain starts. These are fixed points of the program,
    so every rank issues the same collectives in the same order.

    Args:
        limit: largest number of chains in flight, or None. With 0, each chain is waited for when it starts. With a
            limit, a chain continues only after those before it have ended, as on a GPU.
    """

    def __init__(self, recorder: Recorder, limit: int | None) -> None:
        self.recorder = recorder
        self.limit = limit
        self._in_flight: deque[_HostChain] = deque()

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        unfinished = [n for n, earlier in enumerate(self._in_flight) if earlier.rounds_left > 0]
        if unfinished:
            with self.recorder.phase(Phase.GRAD_SYNC):
                for _ in range(unfinished[0] if self.limit is not None else 0):
                    self._in_flight.popleft().end()
                for earlier in self._in_flight:
                    if earlier.rounds_left > 0:
                        earlier.step()
        self._in_flight.append(_HostChain(chain, rounds))
        while self.limit is not None and len(self._in_flight) > self.limit:
            with self.recorder.phase(Phase.GRAD_SYNC):
                self._in_flight.popleft().end()

    def finish(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            while self._in_flight:
                self._in_flight.popleft().end()


class _HostChain:
    """A chain in flight. `rounds_left` is the number of collectives that haven't been issued."""

    def __init__(self, chain: Chain, rounds: int) -> None:
        self.chain = chain
        self.rounds_left = rounds - 1
        self.pending = next(chain, None)

    def step(self) -> None:
        """Waits for the pending collective, and issues the next one."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = next(self.chain, None)
        self.rounds_left -= 1

    def end(self) -> None:
        """Issues and waits for all collectives."""
        while self.pending is not None:
            self.step()


class DeviceChains:
    """Chains on a GPU. Each is issued completely on a separate stream, and the host doesn't wait.

    Chains allocate memory on that stream. The memory of the compute stream that a chain reads must outlive the
    chain, as parameters and `keep` do. See `HostChains` for `limit`.
    """

    def __init__(self, recorder: Recorder, limit: int | None, device: torch.device) -> None:
        self.recorder = recorder
        self.limit = limit
        self.stream = torch.cuda.Stream(device)
        self._ends: deque[tuple[torch.cuda.Event, object]] = deque()

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with use_stream(self.stream):
            for pending in chain:
                pending.wait()
            end = torch.cuda.Event()
            end.record(self.stream)
        self._ends.append((end, keep))
        while self.limit is not None and len(self._ends) > self.limit:
            with self.recorder.phase(Phase.GRAD_SYNC):
                torch.cuda.current_stream().wait_event(self._ends.popleft()[0])

    def finish(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            while self._ends:
                torch.cuda.current_stream().wait_event(self._ends.popleft()[0])


def chains_for(device: torch.device, recorder: Recorder, limit: int | None = None) -> Chains:
    """Returns the chains of a device. See `HostChains` for `limit`."""
    if device.type == "cuda":
        return DeviceChains(recorder, limit, device)
    return HostChains(recorder, limit)
