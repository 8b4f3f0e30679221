"""Rendezvous of the ranks of one machine: a store that only this machine and its emulated hosts can reach."""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

BACKLOG = 1024


def meet(timeout: datetime.timedelta) -> Any:
    """Returns the torch.distributed.Store at MASTER_ADDR and MASTER_PORT.

    The rank with RANK 0 serves the store at that address only. torch.distributed's own rendezvous listens on all
    interfaces of the machine.

    Raises:
        OSError: if rank 0 can't listen at the address.
        RuntimeError: if rank 0 doesn't connect within `timeout`.
    """
    import torch

    dist: Any = torch.distributed
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    serves = os.environ["RANK"] == "0"
    return dist.TCPStore(
        address,
        port,
        int(os.environ["WORLD_SIZE"]),
        is_master=serves,
        timeout=timeout,
        master_listen_fd=_listen(address, port) if serves else None,
    )


def _listen(address: str, port: int) -> int:
    """Returns the descriptor of a listening socket, which the store takes over."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        return listener.detach()
