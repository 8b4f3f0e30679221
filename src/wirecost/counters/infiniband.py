"""Reads InfiniBand, RoCE and EFA ports from /sys/class/infiniband.

`port_xmit_data` and `port_rcv_data` count 32-bit words, whatever the number of lanes: the InfiniBand specification
(PortCounters, 16.1.3.5) divides octets by 4, and Linux reports the value unchanged.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from wirecost.counters.files import CounterFile, names_in, open_if_there, text_of
from wirecost.counters.interface import Reading

WORD_BYTES = 4
# (data, packets, bytes a unit of data), received and sent. EFA has no port_*_data and counts bytes in hw_counters.
_COUNTERS = (
    (
        ("counters/port_rcv_data", "counters/port_xmit_data"),
        ("counters/port_rcv_packets", "counters/port_xmit_packets"),
        WORD_BYTES,
    ),
    (("hw_counters/rx_bytes", "hw_counters/tx_bytes"), ("hw_counters/rx_pkts", "hw_counters/tx_pkts"), 1),
)


class InfinibandSource:
    """Data counters of all ports of all RDMA devices, named like "mlx5_0/1". `root` replaces / in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._directory = root / "sys/class/infiniband"
        self._open: dict[str, tuple[list[CounterFile], int, float | None]] = {}
        self._ports: dict[str, list[str]] = {}

    def read(self) -> list[Reading]:
        devices = names_in(self._directory)
        if devices != list(self._ports):
            self._ports = {d: names_in(self._directory / d / "ports") for d in devices}
            for gone in self._open.keys() - {f"{d}/{p}" for d, ports in self._ports.items() for p in ports}:
                self._drop(gone)
        readings = []
        for device, ports in self._ports.items():
            for port in ports:
                name = f"{device}/{port}"
                if name not in self._open and not self._take(name, self._directory / device / "ports" / port):
                    continue
                files, unit, link = self._open[name]
                try:
                    rx, tx, *packets = [f.read_int() for f in files]
                    rx_packets, tx_packets = packets or (None, None)
                    readings.append(
                        Reading(
                            "infiniband", name, time.monotonic_ns(), rx, tx, unit, link, (), rx_packets, tx_packets
                        )
                    )
                except (OSError, ValueError):
                    self._drop(name)
                    self._ports = {}  # reopen: the device vanished, or its driver was reloaded
        return readings

    def close(self) -> None:
        for name in list(self._open):
            self._drop(name)

    def _take(self, name: str, port: Path) -> bool:
        for data, packets, unit in _COUNTERS:
            if files := _open_both(port, data):
                # Whether packets are counted depends on the driver's version.
                self._open[name] = (files + _open_both(port, packets), unit, port_rate_Bps(port))
                return True
        return False

    def _drop(self, name: str) -> None:
        for file in self._open.pop(name)[0]:
            file.close()


def _open_both(port: Path, names: tuple[str, str]) -> list[CounterFile]:
    """Opens both files; returns none if one is missing."""
    files = [f for name in names if (f := open_if_there(port / name)) is not None]
    if len(files) < len(names):
        for file in files:
            file.close()
        return []
    return files


def port_rate_Bps(port: Path) -> float | None:
    """Returns a port's rate in bytes per second from its file `rate`, such as "100 Gb/sec (4X EDR)"; None if
    unknown.
    """
    m = re.match(r"([\d.]+) Gb/sec", text_of(port / "rate") or "")
    return float(m[1]) * 1e9 / 8 if m else None
