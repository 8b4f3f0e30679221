"""The table of collectives: number of elements, bus factor, how each is run, and its expected result.

An entry's size is the TOTAL of docs/explanation/measurement.md: each rank's output for all-gather, each rank's
input for reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirecost.collectives.traffic import ring_bytes_sent
from wirecost.errors import SpecError, one_of

if TYPE_CHECKING:
    import torch

    from wirecost.collectives.backends.base import Communicator

ROOT = 0

Input = Callable[[int], "torch.Tensor"]
"""Function that returns the data that a rank of the group sends."""


@dataclass(frozen=True)
class Collective:
    """One collective over a group of n ranks.

    Attributes:
        perf_name: the name of the program in nccl-tests.
        splits: each rank holds an n-th of the total on one side or exchanges it piecewise.
        sends_part, receives_part: the buffer on that side holds an n-th of the total.
        in_place: whether one buffer can serve both sides.
        messages_per_run: number of messages; a ping-pong has two.
        run: issues the collective: (communicator, receive, send).
        expected: returns the data that rank i must hold afterwards, or None for no data: (i, n, input, reduce).
    """

    name: str
    perf_name: str
    run: Callable[[Communicator, torch.Tensor, torch.Tensor], None]
    expected: Callable[[int, int, Input, Callable[[Input, int], torch.Tensor]], torch.Tensor | None]
    splits: bool = False
    sends_part: bool = False
    receives_part: bool = False
    reduces: bool = False
    rooted: bool = False
    in_place: bool = True
    pairs: bool = False
    messages_per_run: int = 1

    def bus_factor(self, ranks: int) -> float:
        """Returns busbw / algbw (nccl-tests, doc/PERFORMANCE.md)."""
        return ring_bytes_sent(self.traffic_name, 1, ranks)

    @property
    def traffic_name(self) -> str:
        return "send_recv" if self.name.startswith("send_recv") else self.name

    def send_count(self, elements: int, ranks: int) -> int:
        return elements // ranks if self.sends_part else elements

    def receive_count(self, elements: int, ranks: int) -> int:
        return elements // ranks if self.receives_part else elements

    def shown_count(self, elements: int, ranks: int) -> int:
        """Returns the value of nccl-tests' count column: the elements of one rank's part."""
        return elements // ranks if self.splits else elements

    def elements(self, size_bytes: int, item_bytes: int, ranks: int) -> int:
        """Returns the number of elements of the total.

        Raises:
            SpecError: for a size that is not divisible, with the nearest sizes that are.
        """
        unit = item_bytes * (ranks if self.splits else 1)
        if size_bytes % unit or size_bytes < unit:
            below = size_bytes // unit * unit
            near = [f"{s} B" for s in (below, below + unit) if s > 0]
            what = f"{ranks} ranks of {item_bytes}-byte elements" if self.splits else f"{item_bytes}-byte elements"
            raise SpecError(
                f"{self.name}: a size of {size_bytes} B does not divide over {what}; nearest: {' and '.join(near)}"
            )
        return size_bytes // item_bytes


def _exchange(comm: Communicator, receive: torch.Tensor, send: torch.Tensor) -> None:
    comm.exchange(receive, send, to=(comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)


def partner(rank: int, ranks: int) -> int:
    """Returns the partner of a rank. Partners are half a group apart, so that they are never on the same host if
    hosts are consecutive.
    """
    half = ranks // 2
    return rank + half if rank < half else rank - half


def _ping_pong(comm: Communicator, receive: torch.Tensor, send: torch.Tensor) -> None:
    peer = partner(comm.rank, comm.size)
    if comm.rank < peer:
        comm.send(send, peer)
        comm.receive(receive, peer)
    else:
        comm.receive(receive, peer)
        comm.send(send, peer)


def _gathered(_: int, n: int, data: Input) -> torch.Tensor:
    import torch

    return torch.cat([data(r) for r in range(n)])


def _transposed(i: int, n: int, data: Input) -> torch.Tensor:
    import torch

    return torch.cat([data(r).chunk(n)[i] for r in range(n)])


COLLECTIVES = {
    c.name: c
    for c in (
        Collective(
            "all_reduce",
            "all_reduce_perf",
            run=lambda comm, receive, send: comm.all_reduce(receive, send),
            expected=lambda i, n, data, reduce: reduce(data, n),
            reduces=True,
        ),
        Collective(
            "all_gather",
            "all_gather_perf",
            run=lambda comm, receive, send: comm.all_gather(receive, send),
            expected=lambda i, n, data, reduce: _gathered(i, n, data),
            splits=True,
            sends_part=True,
        ),
        Collective(
            "reduce_scatter",
            "reduce_scatter_perf",
            run=lambda comm, receive, send: comm.reduce_scatter(receive, send),
            expected=lambda i, n, data, reduce: reduce(data, n).chunk(n)[i],
            splits=True,
            receives_part=True,
            reduces=True,
        ),
        Collective(
            "broadcast",
            "broadcast_perf",
            run=lambda comm, receive, send: comm.broadcast(receive, send, ROOT),
            expected=lambda i, n, data, reduce: data(ROOT),
            rooted=True,
        ),
        Collective(
            "reduce",
            "reduce_perf",
            run=lambda comm, receive, send: comm.reduce(receive, send, ROOT),
            expected=lambda i, n, data, reduce: reduce(data, n) if i == ROOT else None,
            reduces=True,
            rooted=True,
        ),
        Collective(
            "all_to_all",
            "alltoall_perf",
            run=lambda comm, receive, send: comm.all_to_all(receive, send),
            expected=lambda i, n, data, reduce: _transposed(i, n, data),
            splits=True,
            in_place=False,
        ),
        # One message in each direction, never both at once: the time is that of one direction.
        Collective(
            "send_recv",
            "sendrecv_perf",
            run=_ping_pong,
            expected=lambda i, n, data, reduce: data(partner(i, n)),
            in_place=False,
            pairs=True,
            messages_per_run=2,
        ),
        # Every rank sends to its right neighbour while it receives from its left, as sendrecv_perf does.
        Collective(
            "send_recv_bidirectional",
            "sendrecv_perf",
            run=_exchange,
            expected=lambda i, n, data, reduce: data((i - 1) % n),
            in_place=False,
        ),
    )
}

READ_ONLY = frozenset({"gather", "scatter"})
"""Collectives that can be read from other tools' results but are not measured here."""


def bus_factor(collective: str, ranks: int) -> float | None:
    """Returns busbw / algbw over `ranks` ranks (nccl-tests, doc/PERFORMANCE.md); None for a collective without a
    size.
    """
    if collective in READ_ONLY:
        return (ranks - 1) / ranks
    entry = COLLECTIVES.get(collective)
    return entry.bus_factor(ranks) if entry is not None else None


BARRIER = "barrier"
"""The barrier has no size and therefore no entry: the driver times `Communicator.barrier`."""

ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all2all": "all_to_all",
    "bcast": "broadcast",
    "sendrecv": "send_recv_bidirectional",
    "p2p": "send_recv",
}


def collective_name(text: str) -> str:
    """Returns the name that wirecost uses for a collective, from any usual one ('allreduce', 'all_reduce_perf',
    'alltoall').

    Raises:
        SpecError: for an unknown name, with the known ones.
    """
    name = text.strip().lower().removesuffix("_perf").replace("-", "_")
    if name not in COLLECTIVES and name != BARRIER:
        name = ALIASES.get(name.replace("_", ""), name)
    if name not in COLLECTIVES and name != BARRIER:
        raise SpecError(one_of("collective", text, [*COLLECTIVES, BARRIER]))
    return name
