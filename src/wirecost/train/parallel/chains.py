"""Chains of collectives that run while backward computes: reduce-scatter, then all-reduce; quantize, exchange,
sum, gather.

A chain is a generator that yields each collective it must see ended before it goes on. `rounds` says how many
collectives there are: the host never waits for the last one before `finish`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Protocol

import torch

from wirecost.breakdown import Phase
from wirecost.train.communicator import Pending
from wirecost.train.recorder import Recorder
from wirecost.train.streams import on

Chain = Generator[Pending, None, None]


class Chains(Protocol):
    """Chains of one strategy, started in the same order on every rank."""

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        """Starts a chain; `keep` is memory that it uses and that is given up once it has ended."""
        ...

    def finish(self) -> None:
        """Makes what comes next wait for all chains."""
        ...


class HostChains:
    """On a CPU. A chain's next collective is issued when another chain starts: at fixed points of the program,
    so that every rank issues the same collectives in the same order.

    Waiting counts as GRAD_SYNC. At most `most` chains are under way; 0 waits for each at once. With `most` a
    chain also goes on only after those before it have ended, as it does on a GPU.
    """

    def __init__(self, recorder: Recorder, most: int | None) -> None:
        self.recorder = recorder
        self.most = most
        self._under_way: deque[_HostChain] = deque()

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        waiting = [n for n, one in enumerate(self._under_way) if one.rounds > 0]
        if waiting:
            with self.recorder.phase(Phase.GRAD_SYNC):
                for _ in range(waiting[0] if self.most is not None else 0):
                    self._under_way.popleft().end()
                for one in self._under_way:
                    if one.rounds > 0:
                        one.step()
        self._under_way.append(_HostChain(chain, rounds))
        while self.most is not None and len(self._under_way) > self.most:
            with self.recorder.phase(Phase.GRAD_SYNC):
                self._under_way.popleft().end()

    def finish(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            while self._under_way:
                self._under_way.popleft().end()


class _HostChain:
    def __init__(self, chain: Chain, rounds: int) -> None:
        self.chain = chain
        self.rounds = rounds - 1  # still to be issued
        self.pending = next(chain, None)

    def step(self) -> None:
        if self.pending is not None:
            self.pending.wait()
            self.pending = next(self.chain, None)
        self.rounds -= 1

    def end(self) -> None:
        while self.pending is not None:
            self.step()


class DeviceChains:
    """On a GPU: chains are issued whole, on a stream of their own; the host waits for nothing.

    They allocate on that stream. What a chain reads of the compute stream's memory must outlive it: parameters,
    or `keep`.
    """

    def __init__(self, recorder: Recorder, most: int | None, device: torch.device) -> None:
        self.recorder = recorder
        self.most = most
        self.stream = torch.cuda.Stream(device)
        self._ends: deque[tuple[torch.cuda.Event, object]] = deque()

    def start(self, chain: Chain, rounds: int, keep: object = None) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with on(self.stream):
            for pending in chain:
                pending.wait()
            end = torch.cuda.Event()
            end.record(self.stream)
        self._ends.append((end, keep))
        while self.most is not None and len(self._ends) > self.most:
            with self.recorder.phase(Phase.GRAD_SYNC):
                torch.cuda.current_stream().wait_event(self._ends.popleft()[0])

    def finish(self) -> None:
        with self.recorder.phase(Phase.GRAD_SYNC):
            while self._ends:
                torch.cuda.current_stream().wait_event(self._ends.popleft()[0])


def chains_for(device: torch.device, recorder: Recorder, most: int | None = None) -> Chains:
    """Chains on a device; see `HostChains` for `most`."""
    if device.type == "cuda":
        return DeviceChains(recorder, most, device)
    return HostChains(recorder, most)
