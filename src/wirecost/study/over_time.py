"""Reads the network over a run's time: counters, iterations and the pauses between them on one clock."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from wirecost.counters.jsonl import read_jsonl
from wirecost.counters.rows import Row
from wirecost.errors import WirecostError
from wirecost.reading import read_result
from wirecost.study.events import EventSpan, event_spans, read_events
from wirecost.study.manifest import MOST_BYTES
from wirecost.study.record_counters import COUNTERS
from wirecost.study.store import StoreError

WIRED = ("ethernet", "infiniband", "nvlink")
"""Kinds of devices with byte counters."""
MOST_DEVICES = 10_000
IDLE_BYTES = 1 << 20
"""A device that moved fewer bytes over a whole run is left out."""


@dataclass(frozen=True)
class Series:
    """One device's bytes since the first sample, at each sample; times are on CLOCK_MONOTONIC."""

    kind: str
    device: str
    t_ns: NDArray[np.int64]
    rx_bytes: NDArray[np.int64]
    tx_bytes: NDArray[np.int64]
    link_Bps: float | None = None

    def moved(self, start_ns: int, end_ns: int) -> tuple[float, float]:
        """Returns the bytes (received, sent) in a span; the rate between two samples counts as constant."""
        edges = [start_ns, end_ns]
        rx, tx = (np.interp(edges, self.t_ns, total) for total in (self.rx_bytes, self.tx_bytes))
        return float(rx[1] - rx[0]), float(tx[1] - tx[0])

    def rates_Bps(self, edges_ns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the mean rates (received, sent) between adjacent `edges_ns` in bytes per second."""
        span_s = np.diff(edges_ns) * 1e-9
        rx, tx = (np.diff(np.interp(edges_ns, self.t_ns, t)) / span_s for t in (self.rx_bytes, self.tx_bytes))
        return rx, tx


@dataclass(frozen=True)
class IterationSpan:
    """One iteration over all ranks, from the first start to the last end. If a rank starts while another is still
    busy with an event before it, such as a checkpoint, the iteration starts when that event ends.
    """

    start_ns: int
    end_ns: int
    warmup: bool


@dataclass(frozen=True)
class LinkUse:
    """Traffic of the busiest device during the iterations after warm-up, in its busier direction. The peak is the
    mean over one sampling interval.
    """

    kind: str
    device: str
    mean_Bps: float
    peak_Bps: float


@dataclass(frozen=True)
class NetworkOverTime:
    """The network over a run. `series` are the devices that took part; hosts of an emulated network are in their
    order.
    """

    series: tuple[Series, ...]
    iterations: tuple[IterationSpan, ...]
    events: tuple[EventSpan, ...]

    @property
    def start_ns(self) -> int:
        return min(int(s.t_ns[0]) for s in self.series)

    @property
    def end_ns(self) -> int:
        return max(int(s.t_ns[-1]) for s in self.series)

    def link_use(self) -> LinkUse | None:
        """Returns the use of the busiest device's link; None without a measured iteration."""
        measured = [i for i in self.iterations if not i.warmup]
        total_s = sum(i.end_ns - i.start_ns for i in measured) * 1e-9
        if not self.series or total_s <= 0:
            return None
        uses = []
        for series in self.series:
            moved = np.array([series.moved(i.start_ns, i.end_ns) for i in measured]).sum(axis=0)
            peak = _peak_Bps(series, measured[0].start_ns, measured[-1].end_ns)
            uses.append(LinkUse(series.kind, series.device, float(moved.max()) / total_s, peak))
        return max(uses, key=lambda use: use.mean_Bps)


def read_over_time(directory: Path) -> NetworkOverTime | None:
    """Returns the network over time of a finished experiment; None if no counters were recorded.

    Raises:
        StoreError: names the file that can't be read.
    """
    path = directory / COUNTERS
    if not path.exists():
        return None
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise StoreError(f"{path}: is no regular file of at most {MOST_BYTES >> 20} MiB")
    try:
        series = series_of(read_jsonl(path))
    except WirecostError as error:
        raise StoreError(str(error)) from error
    events = event_spans(read_events(directory))
    return NetworkOverTime(series, _iterations(directory / "samples", events), events)


class _Totals:
    """Collects one device's samples in 24 bytes each, so that a recording of several days fits in memory."""

    def __init__(self) -> None:
        self.t_ns, self.rx_bytes, self.tx_bytes = (array("q") for _ in range(3))
        self.link_Bps: float | None = None


def series_of(rows: Iterable[Row]) -> tuple[Series, ...]:
    """Returns the devices with byte counters that moved more than `IDLE_BYTES`, by name. The loopback device is
    included only if no other device did.

    Raises:
        WirecostError: for more than `MOST_DEVICES` devices, or a count beyond 64 bits.
    """
    by_device: dict[tuple[str, str], _Totals] = {}
    for row in rows:
        if row.kind in WIRED and row.rx_bytes is not None and row.tx_bytes is not None:
            if len(by_device) > MOST_DEVICES:
                raise WirecostError(f"more than {MOST_DEVICES} devices in one recording")
            totals = by_device.setdefault((row.kind, row.device), _Totals())
            try:
                totals.t_ns.append(row.t_ns)
                totals.rx_bytes.append(row.rx_bytes)
                totals.tx_bytes.append(row.tx_bytes)
            except OverflowError as error:
                raise WirecostError(f"a sample of {row.device[:40]} has a number beyond 64 bits") from error
            totals.link_Bps = row.link_Bps
    series = [
        Series(
            kind,
            device,
            np.array(of.t_ns, dtype=np.int64),
            np.array(of.rx_bytes, dtype=np.int64),
            np.array(of.tx_bytes, dtype=np.int64),
            of.link_Bps,
        )
        for (kind, device), of in by_device.items()
        if len(of.t_ns) > 1 and max(of.rx_bytes[-1], of.tx_bytes[-1]) > IDLE_BYTES
    ]
    real = [s for s in series if s.device != "lo"] or series
    return tuple(sorted(real, key=lambda s: (s.kind, len(s.device), s.device)))


def _peak_Bps(series: Series, start_ns: int, end_ns: int) -> float:
    """Returns the highest rate of the sampling intervals in a span. The last interval is left out because it may
    be very short.
    """
    inside = (series.t_ns >= start_ns) & (series.t_ns <= end_ns)
    t_ns, rx, tx = series.t_ns[inside], series.rx_bytes[inside], series.tx_bytes[inside]
    if len(t_ns) < 2:
        return max(series.moved(start_ns, end_ns)) / ((end_ns - start_ns) * 1e-9)
    passed_s = np.diff(t_ns) * 1e-9
    usual = passed_s >= np.median(passed_s) / 2
    return float(max((np.diff(total)[usual] / passed_s[usual]).max() for total in (rx, tx)))


class _Sample(msgspec.Struct):
    """The fields of a line in samples/rank-R.jsonl that this module needs."""

    warmup: bool
    start_ns: int
    end_ns: int


def _iterations(folder: Path, events: Sequence[EventSpan]) -> tuple[IterationSpan, ...]:
    decode = msgspec.json.Decoder(_Sample).decode
    by_rank = []
    for path in sorted(folder.glob("rank-*.jsonl")):
        try:
            text = read_result(path, StoreError)
            by_rank.append([decode(line) for line in text.splitlines()])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(f"{path}: can't be read as samples: {error}") from error
    spans = []
    for of in zip(*by_rank, strict=False):
        start, end = min(s.start_ns for s in of), max(s.end_ns for s in of)
        busy = [e.end_ns for e in events if e.start_ns <= start < e.end_ns < end]
        spans.append(IterationSpan(max([start, *busy]), end, of[0].warmup))
    return tuple(spans)
