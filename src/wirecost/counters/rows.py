"""The table that samples become: one row for each device and sample."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """What a counter of errors or congestion counted since the first sample."""

    counter: str
    count: int


# Not frozen: see Reading. Nobody changes a row once it is made.
@dataclass(slots=True)
class Row:
    """A device at one sample. None is "not known", never 0.

    `t_ns` is CLOCK_MONOTONIC (as time.monotonic_ns), the same in all processes of a machine, so that rows can be
    laid beside iterations; `unix_ns` is the wall clock for humans. Bytes and packets count from the first sample
    on; a packet is what the device counts as one, segments that the kernel joined included. Rates are over the
    time between this device's last two readings, whenever these really were.
    `late_ns` is how long after its due time the sample was taken. `note` says why a rate is missing: "first"
    reading, counter "reset", counter "full". `events` are those of a row of kind "rdma".
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
    """A device over a whole recording. Rates in bytes per second; the peak is that of the fastest sample.

    `events` are what counters of errors and congestion counted, by name.
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
