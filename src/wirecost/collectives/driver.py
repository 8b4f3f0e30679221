"""The work of every rank: for each collective and size it warms up, times, checks and sends samples to rank 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from wirecost.collectives.backends.base import Communicator
from wirecost.collectives.operations import BARRIER, COLLECTIVES, Collective
from wirecost.collectives.request import Backend, BenchRequest, Mode, ReduceOp
from wirecost.collectives.result import BUSY_SHARE
from wirecost.collectives.timing import MAX_MESSAGES, ROUNDS, Samples, Timer, no_garbage_collection

DEVICE_WARM_UP_S = 0.05
DRAIN_BUCKETS = 1.5
"""Bytes that a link carries before messages are timed, in units of the shaper's bucket: its content and its refill
meanwhile.
"""
DRAIN_S = 1.0
"""A bucket that takes longer than this to empty is not emptied, and the rows that it distorts are marked."""
MIN_DEVICE_ROUND_NS, MIN_DEVICE_PER_ROUND = 20_000_000, 20
"""A round on a device takes at least `MIN_DEVICE_ROUND_NS` or has at least `MIN_DEVICE_PER_ROUND` messages
(nccl-tests' default), so that the host's wait at its end (about 10 µs) is spread over them.
"""


class Control(Protocol):
    """Communication between the ranks beside the measured messages."""

    def barrier(self) -> None: ...
    def maximum(self, value: int) -> int: ...
    def gather(self, value: Any) -> list[Any] | None:
        """Returns all ranks' values on rank 0, None on the others."""
        ...


@dataclass(frozen=True)
class Setup:
    """One rank's state in the benchmark; `comm` is None for a rank that is in no group."""

    request: BenchRequest
    rank: int
    group: int | None
    comm: Communicator | None
    control: Control
    timer: Timer
    device: torch.device
    unshaped_bytes: int | None = None
    """Size of the shaper's bucket on an emulated link."""


@dataclass(frozen=True)
class Case:
    collective: str
    size_bytes: int
    mode: Mode

    def __str__(self) -> str:
        return f"{self.collective} {self.size_bytes} B {self.mode}"


def cases(request: BenchRequest) -> Iterator[Case]:
    """Yields every measurement of a benchmark in order."""
    for name in request.collectives:
        if name == BARRIER:
            yield Case(name, 0, Mode.IN_PLACE)
            continue
        possible = [m for m in request.modes if m is Mode.OUT_OF_PLACE or COLLECTIVES[name].in_place]
        for size in request.sizes_bytes:
            for mode in possible or [Mode.OUT_OF_PLACE]:
                yield Case(name, size, mode)


def measure(setup: Setup, case: Case) -> list[dict[str, Any]] | None:
    """Measures one case. Returns every rank's samples on rank 0, None on the others."""
    if case.collective == BARRIER:
        run = setup.comm.barrier if setup.comm else _nothing
        buffers = None
        messages_per_run = 1
    else:
        collective = COLLECTIVES[case.collective]
        buffers = Buffers(setup, collective, case) if setup.comm else None
        run = buffers.run if buffers else _nothing
        messages_per_run = collective.messages_per_run
    align = setup.comm.barrier if setup.comm else _nothing
    with no_garbage_collection():
        took_ns = _warm_up(setup, run)
        per_round = _messages_per_round(setup, took_ns)
        lead = _drain(setup, case, took_ns, messages_per_run)
        samples = setup.timer.measure(run, per_round, align, lead) if setup.comm else Samples(per_round)
    wrong = buffers.wrong() if buffers and setup.request.check else None
    return setup.control.gather(
        {
            "rank": setup.rank,
            "group": setup.group,
            "wrong": wrong,
            "messages_per_run": messages_per_run,
            **vars(samples),
        }
    )


def _nothing() -> None:
    pass


def _warm_up(setup: Setup, run: Callable[[], None]) -> int:
    """Warms up at the case's size. Returns the duration of one run in ns, the same on every rank."""
    setup.control.barrier()
    start = 0
    for i in range(setup.request.warmup):
        if i == min(1, setup.request.warmup - 1):
            # The first call connects.
            if setup.comm:
                setup.comm.synchronize()
            start = perf_counter_ns()
        run()
    if setup.comm:
        setup.comm.synchronize()
    took_ns = setup.control.maximum((perf_counter_ns() - start) // max(1, setup.request.warmup - 1))
    if setup.request.backend is Backend.NCCL:
        # Processors and GPUs raise their clock rates only under load.
        for _ in range(min(MAX_MESSAGES, int(DEVICE_WARM_UP_S * 1e9 / max(1, took_ns)))):
            run()
    return max(1, took_ns)


def _messages_per_round(setup: Setup, took_ns: int) -> int:
    if setup.request.iterations is not None:
        return setup.request.iterations
    fitting = int(setup.request.budget_s * 1e9 / ROUNDS / took_ns)
    least = 1
    if setup.request.backend is Backend.NCCL:
        least = min(MIN_DEVICE_PER_ROUND, math.ceil(MIN_DEVICE_ROUND_NS / took_ns))
    return max(least, min(MAX_MESSAGES // ROUNDS, fitting))


def _drain(setup: Setup, case: Case, took_ns: int, messages_per_run: int) -> int:
    """Returns the number of messages that empty the shaper's bucket, through which the first ones would pass
    faster than the link. Returns 0 if the link isn't busy, or if emptying takes too long.

    Within a stream the bucket refills only during the pauses between messages. In a ping-pong each end's bucket
    refills while the other end sends.
    """
    emulation = setup.request.network.emulate
    collective = COLLECTIVES.get(case.collective)
    if setup.unshaped_bytes is None or emulation is None or emulation.rate is None:
        return 0
    if collective is None or messages_per_run > 1:
        return 0
    sent_bytes = case.size_bytes * collective.bus_factor(setup.request.group_size)
    messages = math.ceil(DRAIN_BUCKETS * setup.unshaped_bytes / sent_bytes)
    link_ns = sent_bytes * 8e9 / emulation.rate
    return messages if link_ns >= BUSY_SHARE * took_ns and messages * link_ns <= DRAIN_S * 1e9 else 0


class Buffers:
    """The buffers of a case."""

    def __init__(self, setup: Setup, collective: Collective, case: Case) -> None:
        assert setup.comm is not None
        self.comm, self.collective, self.request = setup.comm, collective, setup.request
        self.device, self.size_bytes = setup.device, case.size_bytes
        self.element = setup.request.element
        self.dtype: torch.dtype = getattr(torch, self.element.torch)
        ranks = self.comm.size
        self.total = collective.elements(case.size_bytes, self.element.item_bytes, ranks)
        sent, received = collective.send_count(self.total, ranks), collective.receive_count(self.total, ranks)
        if case.mode is Mode.OUT_OF_PLACE:
            self.send, self.receive = self._empty(sent), self._empty(received)
        else:
            full = self._empty(max(sent, received))
            part = full[self.comm.rank * (self.total // ranks) :][: self.total // ranks]
            self.send = part if collective.sends_part else full
            self.receive = part if collective.receives_part else full
        self.send.copy_(self._data(self.comm.rank))
        self.run = self.comm.recorded(lambda: collective.run(self.comm, self.receive, self.send))

    def _empty(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=self.dtype, device=self.device)

    def _data(self, rank: int) -> torch.Tensor:
        """Returns the data that a rank sends: random integers, whose sum is exact in any order."""
        count = self.collective.send_count(self.total, self.comm.size)
        summed = self.collective.reduces and self.request.redop is ReduceOp.SUM
        largest = max(1, self.element.exact_to // (self.comm.size if summed else 1))
        if summed and rank >= self.element.exact_to:
            return self._empty(count)
        generator = torch.Generator(device=self.device)
        generator.manual_seed((self.request.seed * 1_000_003 + self.size_bytes) * 65_537 + rank)
        lowest = 0 if self.element.name == "uint8" else -largest
        return torch.randint(
            lowest, largest + 1, (count,), dtype=self.dtype, device=self.device, generator=generator
        )

    def _reduced(self, data: Callable[[int], torch.Tensor], ranks: int) -> torch.Tensor:
        total = data(0)
        for rank in range(1, ranks):
            if self.request.redop is ReduceOp.SUM:
                total += data(rank)
            elif self.request.redop is ReduceOp.MAX:
                total = torch.maximum(total, data(rank))
            else:
                total = torch.minimum(total, data(rank))
        return total

    def wrong(self) -> int:
        """Runs once more on fresh data and returns the number of wrong elements."""
        if self.receive is not self.send:
            self.receive.zero_()
        self.send.copy_(self._data(self.comm.rank))
        self.run()
        self.comm.synchronize()
        expected = self.collective.expected(self.comm.rank, self.comm.size, self._data, self._reduced)
        if expected is None:
            return 0
        return int((self.receive != expected).sum().item())
