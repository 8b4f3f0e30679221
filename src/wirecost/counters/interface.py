"""What a counter source gives: readings. One file beside this one for each kind of source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


# Not frozen, which would cost ten times as long to make one; hundreds are made a second.
@dataclass(slots=True)
class Reading:
    """One device's counters at one moment, as the device gives them: never reset, sooner or later wrapping.

    `rx` and `tx` count units of `unit_bytes` bytes (4 for InfiniBand's words, 1,024 for NVLink); None where the
    device doesn't tell. `gauges` are values that are no byte counters, by column name. `events` are counters of
    errors and congestion, by their names.
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
    """Reads all devices of one kind. A device that vanishes is left out of the next answer, one that appears is in
    it; neither is an error. A source that is dear to read has `pace_ns`, the least time between two readings."""

    def read(self) -> list[Reading]: ...

    def close(self) -> None: ...
