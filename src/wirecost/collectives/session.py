"""A rank's session in a benchmark: device, communicator, clock, and communication between the ranks."""

from __future__ import annotations

import datetime
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wirecost.collectives.backends.base import Communicator
from wirecost.collectives.driver import Control, Setup
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.timing import DeviceTimer, HostTimer, captured
from wirecost.emulation.hosts import burst_bytes
from wirecost.errors import UnsupportedError

BUFFERS = 4
"""Number of a rank's buffers: send, receive and, during the check, the expected data and one rank's data."""


@contextmanager
def session(
    request: BenchRequest, rank: int, local_rank: int, timeout_s: float, store: Any = None
) -> Iterator[Setup]:
    """Joins the other ranks and the rank's group, and yields the setup. Leaves both when the context is left.

    Args:
        store: the torch.distributed.Store where the ranks meet; None uses the launcher's: torchrun's environment
            variables or MPI.

    Raises:
        UnsupportedError: if this rank's device or library doesn't support the benchmark.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if request.backend is Backend.MPI:
        with _mpi(request, rank) as setup:
            yield setup
        return
    on_gpu = request.backend is Backend.NCCL
    device = _gpu(local_rank, request) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "gloo",
        timeout=datetime.timedelta(seconds=timeout_s),
        **({} if store is None else {"store": store, "rank": rank, "world_size": request.ranks}),  # type: ignore[arg-type]
    )
    try:
        comm, group = _join(request, rank)
        control = _TorchControl()
        if on_gpu:
            timer: HostTimer | DeviceTimer = DeviceTimer(captured if request.graph else None)
        else:
            timer = HostTimer(common_clock=_one_machine(control))
        emulation = request.network.emulate
        bucket = burst_bytes(emulation.rate) if emulation and emulation.rate and request.hosts > 1 else None
        yield Setup(request, rank, group, comm, control, timer, device, bucket)
        dist.barrier()
        if comm is not None:
            comm.close()
    finally:
        # Without this some gloo ranks abort at exit.
        dist.destroy_process_group()


def _one_machine(control: Control) -> bool:
    """Returns whether all ranks run on one kernel and therefore share its monotonic clock."""
    boot = zlib.crc32(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    return control.maximum(boot) == -control.maximum(-boot)


def _gpu(local_rank: int, request: BenchRequest) -> torch.device:
    have = torch.cuda.device_count() if torch.cuda.is_available() else 0
    # A launcher may make only its own GPU visible to each task.
    own = request.launcher is not None and have == 1
    if have < request.ranks_here and not own:
        raise UnsupportedError(
            f"backend nccl needs a GPU for each rank: {request.ranks_here}, and PyTorch finds {have} here; "
            "use fewer ranks, or --backend gloo"
        )
    device = torch.device("cuda", 0 if own else local_rank)
    torch.cuda.set_device(device)
    # The default stream synchronises with the other streams.
    torch.cuda.set_stream(torch.cuda.Stream(device))
    need, (free, _) = BUFFERS * request.largest_bytes, torch.cuda.mem_get_info(device)
    if need > free:
        raise UnsupportedError(
            f"a size of {request.largest_bytes} B needs {need >> 20} MiB on each GPU, and GPU {device.index} has "
            f"{free >> 20} MiB free; lower the largest size (-e)"
        )
    return device


def _join(request: BenchRequest, rank: int) -> tuple[Communicator | None, int | None]:
    """Returns this rank's communicator and the index of its group."""
    mine: tuple[Communicator | None, int | None] = (None, None)
    for number, ranks in enumerate(request.groups):
        # Every rank of the world must take part in the creation of every group.
        group = dist.new_group(list(ranks))
        if rank not in ranks:
            continue
        if request.backend is Backend.NCCL:
            from wirecost.collectives.backends.nccl import NcclCommunicator

            def share(own: bytes | None, group: Any = group, first: int = ranks[0]) -> bytes:
                id_holder = [own]
                dist.broadcast_object_list(id_holder, src=first, group=group)
                assert id_holder[0] is not None
                return id_holder[0]

            comm: Communicator = NcclCommunicator(
                ranks.index(rank), len(ranks), share, request.element.nccl, str(request.redop)
            )
        else:
            from wirecost.collectives.backends.gloo import GlooCommunicator

            assert isinstance(group, dist.ProcessGroup)
            comm = GlooCommunicator(group, ranks, str(request.redop))
        mine = (comm, number)
    return mine


class _TorchControl:
    """Implements `Control` over gloo."""

    def barrier(self) -> None:
        dist.barrier()

    def maximum(self, value: int) -> int:
        shared = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return int(shared.item())

    def gather(self, value: Any) -> list[Any] | None:
        gathered: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(value, gathered, dst=0)
        return gathered


@contextmanager
def _mpi(request: BenchRequest, rank: int) -> Iterator[Setup]:
    from mpi4py import MPI

    from wirecost.collectives.backends.mpi import MpiCommunicator

    world = MPI.COMM_WORLD
    group = next((number for number, ranks in enumerate(request.groups) if rank in ranks), None)
    order = request.groups[group].index(rank) if group is not None else 0
    part = world.Split(MPI.UNDEFINED if group is None else group, order)
    assert request.element.mpi is not None
    comm = MpiCommunicator(part, request.element.mpi, str(request.redop)) if group is not None else None
    control = _MpiControl()
    timer = HostTimer(common_clock=_one_machine(control))
    yield Setup(request, rank, group, comm, control, timer, torch.device("cpu"))
    world.Barrier()
    if comm is not None:
        comm.close()


class _MpiControl:
    """Implements `Control` over MPI."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm, self._max = MPI.COMM_WORLD.Dup(), MPI.MAX

    def barrier(self) -> None:
        self._comm.Barrier()

    def maximum(self, value: int) -> int:
        return int(self._comm.allreduce(value, self._max))

    def gather(self, value: Any) -> list[Any] | None:
        return self._comm.gather(value)
