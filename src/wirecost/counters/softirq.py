"""Measures the CPU time of the kernel's network work from /proc/stat and /proc/softirqs.

The kernel accounts time for all softirqs together. If most softirqs are network ones (see the NET_RX and NET_TX
counts), it is the network's time. Sockets take additional time in the processes that use them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from wirecost.counters.files import CounterFile, open_if_there
from wirecost.counters.interface import Reading

_SOFTIRQ = 7  # column of a "cpu" line in /proc/stat: user nice system idle iowait irq softirq (proc_stat(5))


class SoftirqSource:
    """A source of softirq gauges. `softirq_cores` is the time in softirqs in cores (0.5: half a core),
    `softirq_busiest_core` the busiest core's share, `net_rx_per_s` and `net_tx_per_s` are network softirqs per
    second. `root` replaces / in tests.
    """

    def __init__(self, root: Path = Path("/"), ticks_per_s: int | None = None) -> None:
        self._stat = open_if_there(root / "proc/stat")
        self._softirqs = open_if_there(root / "proc/softirqs")
        self._tick_s = 1 / (ticks_per_s or os.sysconf("SC_CLK_TCK"))
        self._last: tuple[int, dict[str, int], dict[str, int]] | None = None

    def read(self) -> list[Reading]:
        if self._stat is None:
            return []
        try:
            now, ticks, counts = time.monotonic_ns(), _ticks(self._stat), _network_counts(self._softirqs)
        except (OSError, ValueError):
            return []
        last, self._last = self._last, (now, ticks, counts)
        if last is None or now <= last[0]:
            return [Reading("cpu", "softirq", now)]
        seconds = (now - last[0]) * 1e-9
        shares = {cpu: (t - last[1].get(cpu, t)) * self._tick_s / seconds for cpu, t in ticks.items()}
        gauges = [
            ("softirq_cores", max(shares.pop("cpu", 0.0), 0.0)),
            ("softirq_busiest_core", min(max(shares.values(), default=0.0), 1.0)),
        ]
        gauges += [
            (f"{name.lower()}_per_s", (count - last[2][name]) / seconds)
            for name, count in counts.items()
            if name in last[2]
        ]
        return [Reading("cpu", "softirq", now, gauges=tuple(gauges))]

    def close(self) -> None:
        for file in (self._stat, self._softirqs):
            if file is not None:
                file.close()


def _ticks(stat: CounterFile) -> dict[str, int]:
    ticks = {}
    for line in stat.read(1 << 17).decode().splitlines():
        if not line.startswith("cpu"):
            break
        columns = line.split()
        ticks[columns[0]] = int(columns[_SOFTIRQ])
    return ticks


def _network_counts(softirqs: CounterFile | None) -> dict[str, int]:
    if softirqs is None:
        return {}
    counts = {}
    for line in softirqs.read(1 << 17).decode().splitlines():
        name, _, numbers = line.strip().partition(":")
        if name in ("NET_RX", "NET_TX"):
            counts[name] = sum(map(int, numbers.split()))
    return counts
