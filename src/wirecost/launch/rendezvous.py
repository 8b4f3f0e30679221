"""Rendezvous of the ranks: a store that only this machine, its emulated hosts, or the job's nodes can reach."""

from __future__ import annotations

import datetime
import os
import socket
import time
from pathlib import Path
from typing import Any

from wirecost.launch.ports import free_port
from wirecost.storage import write_file

BACKLOG = 1024
MEETING = "WIRECOST_MEETING"
"""Variable with the name of a rendezvous whose port rank 0 chooses. The other ranks read the port in the job's
directory, which all nodes share. A port that the launcher of several machines chooses may be in use there."""
PORT_OF = "port-"
"""Start of the name of the file with a rendezvous's port."""
POLL_S = 0.05
AGREE_S = 600.0
"""Time in seconds that ranks wait for the port. The processes of a step don't all start at once."""


def meet(timeout: datetime.timedelta, directory: Path) -> Any:
    """Returns the torch.distributed.Store at MASTER_ADDR and MASTER_PORT.

    The rank with RANK 0 serves the store at that address only. torch.distributed's own rendezvous listens on all
    interfaces of the machine. If `MEETING` is set, rank 0 listens at a port that is free, and writes it to
    `directory`.

    Raises:
        OSError: if rank 0 can't listen at the address.
        RuntimeError: if rank 0 doesn't connect within `timeout`.
        TimeoutError: if rank 0 doesn't write its port within `timeout`.
    """
    import torch

    dist: Any = torch.distributed
    address, serves = os.environ["MASTER_ADDR"], os.environ["RANK"] == "0"
    if meeting := os.environ.get(MEETING):
        listener, port = _listen(address, 0) if serves else (None, 0)
        port = agree_on_port(directory, meeting, port if serves else None, timeout.total_seconds())
    else:
        port = int(os.environ["MASTER_PORT"])
        listener = _listen(address, port)[0] if serves else None
    store = dist.TCPStore(
        address,
        port,
        int(os.environ["WORLD_SIZE"]),
        is_master=serves,
        timeout=timeout,
        master_listen_fd=listener,
    )
    if meeting and serves:  # all ranks have connected
        (directory / f"{PORT_OF}{meeting}").unlink(missing_ok=True)
    return store


def free_port_of(directory: Path, meeting: str, *, first: bool) -> int:
    """Returns a port that is free on the node of the first rank, at which a command of the user meets.

    Args:
        directory: directory of the job, which all nodes share.
        meeting: name of the rendezvous, which no other of this directory has.
        first: whether this process runs the first rank.

    Raises:
        TimeoutError: if the first rank doesn't write its port.
    """
    return agree_on_port(directory, meeting, free_port() if first else None, AGREE_S)


def agree_on_port(directory: Path, meeting: str, port: int | None, timeout_s: float) -> int:
    """Writes the port that rank 0 has chosen, or waits for it if `port` is None, and returns it.

    Raises:
        TimeoutError: if rank 0 doesn't write its port in time.
    """
    path = directory.absolute() / f"{PORT_OF}{meeting}"
    if port is not None:
        write_file(path, str(port))
        return port
    deadline = time.monotonic() + timeout_s
    # Opening the directory makes a network file system ask its server for new files.
    while path not in path.parent.iterdir():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 did not write its port to {path} within {timeout_s:.0f} s")
        time.sleep(POLL_S)
    return int(path.read_text())


def _listen(address: str, port: int) -> tuple[int, int]:
    """Returns the descriptor of a listening socket, which the store takes over, and its port.

    Args:
        port: the port, or 0 for any that is free.
    """
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        port = int(listener.getsockname()[1])
        return listener.detach(), port
