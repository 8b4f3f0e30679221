"""Reads Ethernet and all other network interfaces from /sys/class/net.

RDMA traffic bypasses the kernel and doesn't appear here; infiniband.py reads it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from wirecost.counters.files import CounterFile, names_in, open_if_there, text_of
from wirecost.counters.interface import Reading

_COUNTERS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
_DEVICE_TABLE = Path("/proc/thread-self/net/dev")  # of the calling thread's network namespace


class EthernetSource:
    """Byte counters of all network interfaces of the caller's network namespace.

    /sys shows the namespace in which it was mounted. Inside an emulated host that isn't the process's, so
    /proc/thread-self/net/dev is read instead. `root` replaces / in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._directory = root / "sys/class/net"
        self._open: dict[str, tuple[tuple[CounterFile, ...], float | None]] = {}
        self._table: CounterFile | None = None
        if root == Path("/") and not _sysfs_is_ours(self._directory):
            self._table = open_if_there(_DEVICE_TABLE)

    def read(self) -> list[Reading]:
        return self._read_table(self._table) if self._table is not None else self._read_sysfs()

    def close(self) -> None:
        for name in list(self._open):
            self._drop(name)
        if self._table is not None:
            self._table.close()

    def _read_sysfs(self) -> list[Reading]:
        names = names_in(self._directory)
        for gone in self._open.keys() - set(names):
            self._drop(gone)
        entries = []
        for name in names:
            if name not in self._open and not self._take(name):
                continue
            files, link = self._open[name]
            try:
                rx, tx, rx_packets, tx_packets = [f.read_int() for f in files]
                entries.append(
                    Reading(
                        "ethernet",
                        name,
                        time.monotonic_ns(),
                        rx,
                        tx,
                        link_Bps=link,
                        rx_packets=rx_packets,
                        tx_packets=tx_packets,
                    )
                )
            except (OSError, ValueError):
                self._drop(name)  # gone since the listing; reopened if it returns
        return entries

    def _take(self, name: str) -> bool:
        statistics = self._directory / name / "statistics"
        files = [open_if_there(statistics / counter) for counter in _COUNTERS]
        there = tuple(f for f in files if f is not None)
        if len(there) < len(_COUNTERS):
            for file in there:
                file.close()
            return False  # /sys/class/net/bonding_masters isn't an interface
        self._open[name] = (there, link_speed_Bps(self._directory / name))
        return True

    def _drop(self, name: str) -> None:
        for file in self._open.pop(name)[0]:
            file.close()

    @staticmethod
    def _read_table(table: CounterFile) -> list[Reading]:
        now = time.monotonic_ns()
        return [
            Reading("ethernet", name, now, rx, tx, rx_packets=rx_packets, tx_packets=tx_packets)
            for name, (rx, rx_packets, tx, tx_packets) in read_device_table(table).items()
        ]


class SwitchSource:
    """Counts the traffic of hosts at the ports of their switch. The bytes that a port sends are those that its
    host receives.

    `ports` are the interfaces to the hosts, with the hosts' names; `link_Bps` is their shaped rate. Create the
    source in the network namespace of the switch. It can be read from any namespace, because an open table stays
    that of its namespace.
    """

    def __init__(self, ports: Sequence[str], link_Bps: float | None = None) -> None:
        self._ports, self._link_Bps = frozenset(ports), link_Bps
        self._table = CounterFile(_DEVICE_TABLE)

    def read(self) -> list[Reading]:
        now = time.monotonic_ns()
        return [
            Reading("ethernet", name, now, tx, rx, 1, self._link_Bps, (), tx_packets, rx_packets)
            for name, (rx, rx_packets, tx, tx_packets) in read_device_table(self._table).items()
            if name in self._ports
        ]

    def close(self) -> None:
        self._table.close()


def read_device_table(table: CounterFile) -> dict[str, tuple[int, int, int, int]]:
    """Returns (received bytes, received packets, sent bytes, sent packets) of each interface from
    /proc/net/dev.
    """
    entries = {}
    for line in table.read(1 << 16).decode().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        entries[name.strip()] = int(columns[0]), int(columns[1]), int(columns[8]), int(columns[9])
    return entries


def link_speed_Bps(interface: Path) -> float | None:
    """Returns the nominal speed in one direction; None for an interface that is down or virtual (-1
    or an error).
    """
    speed = text_of(interface / "speed")  # in Mb/s
    try:
        megabits = int(speed or "")
    except ValueError:
        return None
    return megabits * 1e6 / 8 if 0 < megabits < 2**31 - 1 else None


def _sysfs_is_ours(directory: Path) -> bool:
    """Returns whether /sys shows the interfaces of this process's network namespace."""
    ours = {name: index for index, name in socket.if_nameindex()}
    theirs = {}
    for name in names_in(directory):
        index = text_of(directory / name / "ifindex")
        if index is not None:
            theirs[name] = int(index)
    return ours == theirs
