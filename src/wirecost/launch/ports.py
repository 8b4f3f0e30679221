"""Chooses the TCP port of a job's rendezvous."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path

PORTS_TRIED = 100
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(ephemeral: Path = EPHEMERAL_PORTS) -> int:
    """Returns a free port for the rendezvous of the ranks, which happens seconds later.

    It is none of the ephemeral ports, because another process's connection could take one of those in the
    meantime.

    Raises:
        OSError: if all ports that were tried are in use.
    """
    try:
        first, last = map(int, ephemeral.read_text().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    ports: Sequence[int] = [port for port in range(10_000, 65_536) if not first <= port <= last]
    if len(ports) < PORTS_TRIED:
        ports = range(10_000, 65_536)
    for port in random.SystemRandom().sample(ports, PORTS_TRIED):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(
        f"{PORTS_TRIED} ports from 10000 on are all in use, and the ranks need one to meet on; end the programs "
        "that listen on them (ss -ltnp shows them)"
    )
