"""The interface of counter sources. Each kind of source has its own file in this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


# Not frozen, because creation would take ten times as long, and hundreds are created per second.
@dataclass(slots=True)
class Reading:
    """One device's raw counters at one time. They may wrap and are never reset by wirecost.

    `rx` and `tx` count units of `unit_bytes` bytes (4 for InfiniBand's words, 1,024 for NVLink); None if unknown.
    `gauges` are values other than byte counters by column name. `events` are counters of errors and congestion by
    name.
    """

    kind: str  # "ethernet", "infiniband", "nvlink", "pcie", "cpu", "rdma"
    device: str
    t_ns: int  # CLOCK_MONOTONIC at the time of reading
    rx: int | None = None
    tx: int | None = None
    unit_bytes: int = 1
    link_Bps: float | None = None  # one direction, nominal
    gauges: tuple[tuple[str, float], ...] = ()
    rx_packets: int | None = None
    tx_packets: int | None = None
    events: tuple[tuple[str, int], ...] = ()


class CounterSource(Protocol):
    """Reads all devices of one kind. Devices may vanish and appear between readings; neither is an error. A source
    that is expensive to read has `pace_ns`, the least time between two readings.
    """

    def read(self) -> list[Reading]: ...

    def close(self) -> None: ...
