"""The table of samples: one row for each device and sample."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """The number of errors or congestion events that a counter counted since the first sample."""

    counter: str
    count: int


# Not frozen, for the same reason as Reading. Rows aren't changed after creation.
@dataclass(slots=True)
class Row:
    """A device at one sample. An unknown value is None, never 0.

    `t_ns` is CLOCK_MONOTONIC (as time.monotonic_ns), the same in all processes of a machine, so that rows can be
    compared with iterations; `unix_ns` is the wall clock for people. Bytes and packets count from the first sample
    on; a packet is a unit of the device's count, which may be several segments that the kernel merged. Rates are
    over the actual time between this device's last two readings. `late_ns` is the delay of the sample behind its
    due time. `note` is the reason for a missing rate: "first" reading, counter "reset", counter "full". `events`
    are those of a row of kind "rdma".
    """

    t_ns: int
    unix_ns: int
    kind: str
    device: str
    rx_bytes: int | None = None
    tx_bytes: int | None = None
    rx_Bps: float | None = None
    tx_Bps: float | None = None
    link_Bps: float | None = None
    late_ns: int = 0
    note: str | None = None
    softirq_cores: float | None = None
    softirq_busiest_core: float | None = None
    net_rx_per_s: float | None = None
    net_tx_per_s: float | None = None
    rx_packets: int | None = None
    tx_packets: int | None = None
    events: tuple[Event, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A device over a whole recording. Rates are in bytes per second; the peak is that of the fastest sample.

    `events` are the counts of errors and congestion by name.
    """

    kind: str
    device: str
    rx_bytes: int | None
    tx_bytes: int | None
    seconds: float
    rx_mean_Bps: float | None
    tx_mean_Bps: float | None
    rx_peak_Bps: float | None
    tx_peak_Bps: float | None
    link_Bps: float | None
    samples: int
    resets: int
    events: tuple[tuple[str, int], ...] = ()
