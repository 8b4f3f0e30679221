"""MPI through mpi4py, on buffers in CPU memory. Calls return when they are done.

MPI's in-place reduce-scatter leaves its result at the start of the buffer, and a broadcast has a single buffer. If
the result belongs elsewhere, or the data come from another buffer, a copy is made, and the copy's time counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from mpi4py import MPI

from wirecost.collectives.backends.base import Recorder

OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
TAG = 0


class MpiCommunicator(Recorder):
    """Implements `Communicator`.

    Args:
        mpi_type: mpi4py's name of the type of every tensor that will be passed ('FLOAT').
    """

    def __init__(self, comm: MPI.Comm, mpi_type: str, redop: str) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._type: MPI.Datatype = getattr(MPI, mpi_type)
        self._op = OPS[redop]

    def _spec(self, tensor: torch.Tensor) -> list[Any]:
        """Returns mpi4py's description of a buffer, which shares the tensor's memory."""
        return [tensor.numpy(), tensor.numel(), self._type]

    def all_reduce(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        source = MPI.IN_PLACE if receive is send else self._spec(send)
        self._do(partial(self.comm.Allreduce, source, self._spec(receive), self._op))

    def all_gather(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        source = MPI.IN_PLACE if _shared(receive, send) else self._spec(send)
        # MPI takes the element count of one rank's part, not of the whole buffer.
        target = [receive.numpy(), receive.numel() // self.size, self._type]
        self._do(partial(self.comm.Allgather, source, target))

    def reduce_scatter(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        if not _shared(receive, send):
            parts = [send.numpy(), receive.numel(), self._type]
            self._do(partial(self.comm.Reduce_scatter_block, parts, self._spec(receive), self._op))
            return
        part = [send.numpy(), receive.numel(), self._type]
        self._do(partial(self.comm.Reduce_scatter_block, MPI.IN_PLACE, part, self._op))
        if self.rank:
            self._do(partial(receive.copy_, send[: receive.numel()]))

    def broadcast(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        if receive is not send and self.rank == root:
            self._do(partial(receive.copy_, send))
        self._do(partial(self.comm.Bcast, self._spec(receive), root))

    def reduce(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        if self.rank != root:
            self._do(partial(self.comm.Reduce, self._spec(send), None, self._op, root))
            return
        source = MPI.IN_PLACE if receive is send else self._spec(send)
        self._do(partial(self.comm.Reduce, source, self._spec(receive), self._op, root))

    def all_to_all(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        count = send.numel() // self.size
        source, into = [send.numpy(), count, self._type], [receive.numpy(), count, self._type]
        self._do(partial(self.comm.Alltoall, source, into))

    def exchange(self, receive: torch.Tensor, send: torch.Tensor, *, to: int, source: int) -> None:
        out, into = self._spec(send), self._spec(receive)
        self._do(partial(self.comm.Sendrecv, out, to, TAG, into, source, TAG))

    def send(self, buffer: torch.Tensor, to: int) -> None:
        self._do(partial(self.comm.Send, self._spec(buffer), to, TAG))

    def receive(self, buffer: torch.Tensor, source: int) -> None:
        self._do(partial(self.comm.Recv, self._spec(buffer), source, TAG))

    def barrier(self) -> None:
        self._do(self.comm.Barrier)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        self.comm.Free()


def _shared(receive: torch.Tensor, send: torch.Tensor) -> bool:
    """Returns whether the tensors share their storage."""
    return receive.untyped_storage().data_ptr() == send.untyped_storage().data_ptr()
