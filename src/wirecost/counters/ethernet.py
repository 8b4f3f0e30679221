"""Ethernet and every other network interface, from /sys/class/net.

RDMA traffic doesn't appear here: it bypasses the kernel. Read infiniband.py for it.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from wirecost.counters.files import CounterFile, names_in, open_if_there, text_of
from wirecost.counters.interface import Reading


class EthernetSource:
    """Byte counters of all network interfaces of the caller's network namespace.

    /sys shows the namespace it was mounted in, which inside an emulated host is another than the process's; there
    /proc/thread-self/net/dev is read instead, which always is the process's own. `root` stands in for / in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._directory = root / "sys/class/net"
        self._open: dict[str, tuple[CounterFile, CounterFile, float | None]] = {}
        self._table: CounterFile | None = None
        if root == Path("/") and not _sysfs_is_ours(self._directory):
            self._table = open_if_there(Path("/proc/thread-self/net/dev"))

    def read(self) -> list[Reading]:
        return self._read_table(self._table) if self._table is not None else self._read_sysfs()

    def close(self) -> None:
        for rx, tx, _ in self._open.values():
            rx.close()
            tx.close()
        self._open.clear()
        if self._table is not None:
            self._table.close()

    def _read_sysfs(self) -> list[Reading]:
        names = names_in(self._directory)
        for gone in self._open.keys() - set(names):
            self._drop(gone)
        found = []
        for name in names:
            if name not in self._open and not self._take(name):
                continue
            rx, tx, link = self._open[name]
            try:
                found.append(
                    Reading("ethernet", name, time.monotonic_ns(), rx.read_int(), tx.read_int(), link_Bps=link)
                )
            except (OSError, ValueError):
                self._drop(name)  # gone since the listing; opened anew if it comes back
        return found

    def _take(self, name: str) -> bool:
        statistics = self._directory / name / "statistics"
        rx, tx = open_if_there(statistics / "rx_bytes"), open_if_there(statistics / "tx_bytes")
        if rx is None or tx is None:
            return False  # /sys/class/net/bonding_masters is no interface
        self._open[name] = (rx, tx, link_speed_Bps(self._directory / name))
        return True

    def _drop(self, name: str) -> None:
        rx, tx, _ = self._open.pop(name)
        rx.close()
        tx.close()

    @staticmethod
    def _read_table(table: CounterFile) -> list[Reading]:
        now = time.monotonic_ns()
        found = []
        for line in table.read(1 << 16).decode().splitlines()[2:]:
            name, _, numbers = line.partition(":")
            columns = numbers.split()
            found.append(Reading("ethernet", name.strip(), now, int(columns[0]), int(columns[8])))
        return found


def link_speed_Bps(interface: Path) -> float | None:
    """The nominal speed in one direction, or None: interfaces that are down or virtual say -1 or refuse."""
    speed = text_of(interface / "speed")  # in Mb/s
    try:
        megabits = int(speed or "")
    except ValueError:
        return None
    return megabits * 1e6 / 8 if 0 < megabits < 2**31 - 1 else None


def _sysfs_is_ours(directory: Path) -> bool:
    """Whether /sys shows the interfaces of this process's network namespace."""
    ours = {name: index for index, name in socket.if_nameindex()}
    theirs = {}
    for name in names_in(directory):
        index = text_of(directory / name / "ifindex")
        if index is not None:
            theirs[name] = int(index)
    return ours == theirs
