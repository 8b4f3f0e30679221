"""gloo through torch.distributed, as training on CPUs uses it. Calls return when they are done.

gloo reduces and broadcasts in place only. An out-of-place call makes a copy first, and the copy's time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class GlooCommunicator:
    """Implements `Communicator`. `ranks` are the members' ranks in the world."""

    def __init__(self, group: dist.ProcessGroup, ranks: Sequence[int], redop: str) -> None:
        self.group = group
        self.ranks = list(ranks)
        self.rank = self.ranks.index(dist.get_rank())
        self.size = len(self.ranks)
        self.op = OPS[redop]

    def all_reduce(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        if receive is not send:
            receive.copy_(send)
        dist.all_reduce(receive, self.op, group=self.group)

    def all_gather(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        dist.all_gather_into_tensor(receive, send, group=self.group)

    def reduce_scatter(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        dist.reduce_scatter_tensor(receive, send, self.op, group=self.group)

    def broadcast(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        if receive is not send and self.rank == root:
            receive.copy_(send)
        dist.broadcast(receive, self.ranks[root], group=self.group)

    def reduce(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        if receive is not send:
            receive.copy_(send)
        dist.reduce(receive, self.ranks[root], self.op, group=self.group)

    def all_to_all(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        dist.all_to_all_single(receive, send, group=self.group)

    def exchange(self, receive: torch.Tensor, send: torch.Tensor, *, to: int, source: int) -> None:
        # Post the receive first: a message that arrives before its receive is posted has to wait.
        pending = [
            dist.irecv(receive, self.ranks[source], group=self.group),
            dist.isend(send, self.ranks[to], group=self.group),
        ]
        for work in pending:
            if work is not None:
                work.wait()

    def send(self, buffer: torch.Tensor, to: int) -> None:
        dist.send(buffer, self.ranks[to], group=self.group)

    def receive(self, buffer: torch.Tensor, source: int) -> None:
        dist.recv(buffer, self.ranks[source], group=self.group)

    def recorded(self, body: Callable[[], None]) -> Callable[[], None]:
        return body

    def barrier(self) -> None:
        dist.barrier(group=self.group)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass
