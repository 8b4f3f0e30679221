"""NCCL, called directly, because a call through torch.distributed takes longer than a small message.

The library is the one that PyTorch has loaded. Signatures and numbers are those of nccl.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import repeat, starmap
from typing import Any

import torch

from wirecost.collectives.backends.base import Recorder
from wirecost.errors import UnsupportedError

UNIQUE_ID_BYTES = 128  # NCCL_UNIQUE_ID_BYTES
OPS = {"sum": 0, "max": 2, "min": 3}  # ncclRedOp_t
SUM = OPS["sum"]
UINT8 = 1  # ncclDataType_t


class NcclError(RuntimeError):
    """Raised if a call of NCCL returns an error code."""


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * UNIQUE_ID_BYTES)]


def load() -> ctypes.CDLL:
    """Loads NCCL and declares its functions. Raises UnsupportedError if the library is missing."""
    try:
        library = ctypes.CDLL("libnccl.so.2")
    except OSError as error:
        raise UnsupportedError(
            "backend nccl needs libnccl.so.2; install PyTorch for CUDA, which contains it, or use --backend gloo"
        ) from error
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    signatures = {
        "ncclGetUniqueId": [ctypes.POINTER(_UniqueId)],
        "ncclCommInitRank": [ctypes.POINTER(pointer), number, _UniqueId, number],
        "ncclCommDestroy": [pointer],
        "ncclAllReduce": [pointer, pointer, size, number, number, pointer, pointer],
        "ncclBroadcast": [pointer, pointer, size, number, number, pointer, pointer],
        "ncclReduce": [pointer, pointer, size, number, number, number, pointer, pointer],
        "ncclAllGather": [pointer, pointer, size, number, pointer, pointer],
        "ncclReduceScatter": [pointer, pointer, size, number, number, pointer, pointer],
        "ncclSend": [pointer, size, number, number, pointer, pointer],
        "ncclRecv": [pointer, size, number, number, pointer, pointer],
        "ncclGroupStart": [],
        "ncclGroupEnd": [],
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, number
    library.ncclGetErrorString.argtypes, library.ncclGetErrorString.restype = [number], ctypes.c_char_p
    return library


class PreparedCall:
    """A call whose arguments are converted once.

    A small message takes about 10 µs. The microsecond that ctypes takes to convert seven arguments would distort
    its time, and so would Python's own loop.

    Args:
        function: a function without `argtypes`, which would convert the arguments again.
        check: called with each return code.
    """

    def __init__(
        self, function: Callable[..., int], arguments: tuple[Any, ...], check: Callable[[int], None]
    ) -> None:
        self.function, self.arguments, self.check = function, arguments, check

    def __call__(self) -> None:
        self.check(self.function(*self.arguments))

    def times(self, count: int) -> None:
        # ncclSuccess is 0 and no code of ncclResult_t is negative.
        self.check(max(starmap(self.function, repeat(self.arguments, count)), default=0))


class NcclCommunicator(Recorder):
    """Implements `Communicator` on the current CUDA device and stream.

    Args:
        share: passes rank 0's bytes to every rank of the group and returns them.
        nccl_dtype: the ncclDataType_t of all tensors that will be passed.
    """

    def __init__(
        self, rank: int, size: int, share: Callable[[bytes | None], bytes], nccl_dtype: int, redop: str
    ) -> None:
        self.rank, self.size = rank, size
        self._lib = load()
        self._dtype, self._op = nccl_dtype, OPS[redop]
        self._stream = torch.cuda.current_stream().cuda_stream
        unique = _UniqueId()
        if rank == 0:
            self._check(self._lib.ncclGetUniqueId(ctypes.byref(unique)))
        unique_bytes = share(bytes(unique) if rank == 0 else None)
        unique = _UniqueId.from_buffer_copy(unique_bytes)
        comm = ctypes.c_void_p()
        self._check(self._lib.ncclCommInitRank(ctypes.byref(comm), size, unique, rank))
        self._comm = comm.value
        self._token = torch.zeros(1, dtype=torch.uint8, device="cuda")

    def _check(self, code: int) -> None:
        if code:
            raise NcclError(
                f"NCCL: {self._lib.ncclGetErrorString(code).decode()} (set NCCL_DEBUG=WARN for details)"
            )

    def _issue(self, name: str, *arguments: int | None) -> None:
        kinds = getattr(self._lib, name).argtypes
        converted = tuple(kind.from_param(a) for kind, a in zip(kinds, arguments, strict=True))
        self._do(PreparedCall(self._lib[name], converted, self._check))

    def all_reduce(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        where = send.data_ptr(), receive.data_ptr(), send.numel()
        self._issue("ncclAllReduce", *where, self._dtype, self._op, self._comm, self._stream)

    def all_gather(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        where = send.data_ptr(), receive.data_ptr(), send.numel()
        self._issue("ncclAllGather", *where, self._dtype, self._comm, self._stream)

    def reduce_scatter(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        where = send.data_ptr(), receive.data_ptr(), receive.numel()
        self._issue("ncclReduceScatter", *where, self._dtype, self._op, self._comm, self._stream)

    def broadcast(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        where = send.data_ptr(), receive.data_ptr(), send.numel()
        self._issue("ncclBroadcast", *where, self._dtype, root, self._comm, self._stream)

    def reduce(self, receive: torch.Tensor, send: torch.Tensor, root: int) -> None:
        where = send.data_ptr(), receive.data_ptr(), send.numel()
        self._issue("ncclReduce", *where, self._dtype, self._op, root, self._comm, self._stream)

    def all_to_all(self, receive: torch.Tensor, send: torch.Tensor) -> None:
        # Older versions of NCCL have no all-to-all, so this issues a send and a receive for each pair.
        self._issue("ncclGroupStart")
        for peer, (to, source) in enumerate(zip(send.chunk(self.size), receive.chunk(self.size), strict=True)):
            self.send(to, peer)
            self.receive(source, peer)
        self._issue("ncclGroupEnd")

    def exchange(self, receive: torch.Tensor, send: torch.Tensor, *, to: int, source: int) -> None:
        self._issue("ncclGroupStart")
        self.send(send, to)
        self.receive(receive, source)
        self._issue("ncclGroupEnd")

    def send(self, buffer: torch.Tensor, to: int) -> None:
        self._issue("ncclSend", buffer.data_ptr(), buffer.numel(), self._dtype, to, self._comm, self._stream)

    def receive(self, buffer: torch.Tensor, source: int) -> None:
        self._issue("ncclRecv", buffer.data_ptr(), buffer.numel(), self._dtype, source, self._comm, self._stream)

    def barrier(self) -> None:
        # NCCL has no barrier. The usual substitute is an all-reduce of one byte that the host waits for.
        at = self._token.data_ptr()
        self._issue("ncclAllReduce", at, at, 1, UINT8, SUM, self._comm, self._stream)
        self.synchronize()

    def synchronize(self) -> None:
        torch.cuda.current_stream().synchronize()

    def close(self) -> None:
        torch.cuda.synchronize()
        self._check(self._lib.ncclCommDestroy(self._comm))
