"""Samples all counter sources at a fixed interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Protocol

from wirecost.counters.interface import CounterSource, Reading
from wirecost.counters.rows import DeviceSummary, Event, Row
from wirecost.counters.unwrap import Counter
from wirecost.errors import WirecostError


class Sink(Protocol):
    """A receiver of rows."""

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Device:
    rx: Counter = field(default_factory=Counter)
    tx: Counter = field(default_factory=Counter)
    rx_packets: Counter = field(default_factory=Counter)
    tx_packets: Counter = field(default_factory=Counter)
    has_rx: bool = False
    has_tx: bool = False
    unit_bytes: int = 1
    first_ns: int = 0
    t_ns: int | None = None  # of the last reading; None while the device is gone
    last_ns: int = 0
    link_Bps: float | None = None
    rx_peak: float | None = None
    tx_peak: float | None = None
    samples: int = 0
    resets: int = 0
    events: dict[str, Counter] = field(default_factory=dict)

    @property
    def counters(self) -> list[Counter]:
        return [self.rx, self.tx, self.rx_packets, self.tx_packets, *self.events.values()]


class Sampler:
    """Reads counters every `every_ns` and passes rows to its sinks.

        with Sampler(every_ns=100_000_000) as sampler:
            train()
        for row in sampler.rows: ...

    It runs in its own thread (`start`, `stop`, or as a context manager), or the caller calls `sample`. With
    `keep`, all rows are kept in `rows`; otherwise only sinks get them. `only` are patterns of device names
    ("eth*", "mlx5_0/1"); without patterns every device is sampled. An error of a source or sink ends the thread
    and is raised by `stop`.
    """

    def __init__(
        self,
        *,
        every_ns: int = 100_000_000,
        sources: Sequence[CounterSource] | None = None,
        sinks: Iterable[Sink] = (),
        keep: bool = True,
        only: Sequence[str] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if every_ns <= 0:
            raise ValueError(f"every_ns must be positive, not {every_ns}")
        self.every_ns = every_ns
        self.sources = list(default_sources() if sources is None else sources)
        self.sinks = list(sinks)
        self.rows: list[Row] = []
        self.latest: dict[tuple[str, str], Row] = {}
        self.samples = 0
        self.late_samples = 0
        self._keep = keep
        self._only = tuple(only)
        self._device_names: set[str] = set()  # devices, whether sampled or not
        self._clock_ns = clock_ns
        self._devices: dict[tuple[str, str], _Device] = {}
        self._due_ns: dict[int, int] = {}  # of sources with a pace of their own
        self._keys: dict[int, set[tuple[str, str]]] = {}  # their devices, as last seen
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Takes a first sample, if there is none, and continues in a thread. Everything from here
        on is counted.
        """
        if self.samples == 0:
            self.sample()
        thread = threading.Thread(target=self.run, name="wirecost-sampler", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Takes the last sample and closes sources and sinks. Raises the thread's error, if there was one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._closed:
            return
        self._closed = True
        try:
            if self._error is None:
                self.sample(every_source=True)
        except WirecostError as error:
            self._error = error
        finally:
            for part in (*self.sources, *self.sinks):
                try:
                    part.close()
                except WirecostError as error:
                    self._error = self._error or error
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Samples until `stop`; runs in the thread."""
        due = self._clock_ns() + self.every_ns
        try:
            while not self._stop.wait(max(due - self._clock_ns(), 0) * 1e-9):
                now = self._clock_ns()
                late_ns = max(now - due, 0)
                self.sample(late_ns)
                # Missed samples are skipped: catching up would only read the same state several times.
                due += self.every_ns * (1 + late_ns // self.every_ns)
        except BaseException as error:  # noqa: BLE001 (handed to the caller by `stop`)
            self._error = error

    def sample(self, late_ns: int = 0, *, every_source: bool = False) -> list[Row]:
        """Reads every source once, expensive ones only if they are due or with `every_source`. Returns the rows.
        `late_ns` is the delay behind the due time.
        """
        self.samples += 1
        self.late_samples += late_ns >= self.every_ns
        unix_offset_ns = time.time_ns() - time.monotonic_ns()
        rows = []
        present = set()
        for number, source in enumerate(self.sources):
            if not every_source and time.monotonic_ns() < self._due_ns.get(number, 0):
                present |= self._keys.get(number, set())
                continue
            readings = source.read()
            if (pace_ns := getattr(source, "pace_ns", 0)) > self.every_ns:
                self._due_ns[number] = time.monotonic_ns() + pace_ns
                self._keys[number] = {(r.kind, r.device) for r in readings}
            for reading in readings:
                if self._only:
                    self._device_names.add(reading.device)
                    if not any(fnmatch(reading.device, pattern) for pattern in self._only):
                        continue
                key = (reading.kind, reading.device)
                present.add(key)
                row = self._row(key, reading, unix_offset_ns, late_ns)
                self.latest[key] = row
                rows.append(row)
        for key, device in self._devices.items():
            if key not in present and device.t_ns is not None:
                device.t_ns = None
                for counter in device.counters:
                    counter.absent()
                self.latest.pop(key, None)
        if self._keep:
            self.rows.extend(rows)
        for sink in self.sinks:
            sink.write(rows)
        return rows

    def unmatched(self) -> tuple[str, ...]:
        """Returns the patterns of `only` that have matched no device so far."""
        return tuple(p for p in self._only if not any(fnmatch(device, p) for device in self._device_names))

    @property
    def device_names(self) -> list[str]:
        """Returns the names of all devices, sampled or not; empty without `only`."""
        return sorted(self._device_names)

    def summary(self) -> list[DeviceSummary]:
        """Returns each device's summary over the whole recording."""
        summaries = []
        for (kind, name), d in self._devices.items():
            seconds = (d.last_ns - d.first_ns) * 1e-9
            rx = d.rx.total * d.unit_bytes if d.has_rx else None
            tx = d.tx.total * d.unit_bytes if d.has_tx else None
            summaries.append(
                DeviceSummary(
                    kind=kind,
                    device=name,
                    rx_bytes=rx,
                    tx_bytes=tx,
                    seconds=seconds,
                    rx_mean_Bps=rx / seconds if rx is not None and seconds > 0 else None,
                    tx_mean_Bps=tx / seconds if tx is not None and seconds > 0 else None,
                    rx_peak_Bps=d.rx_peak,
                    tx_peak_Bps=d.tx_peak,
                    link_Bps=d.link_Bps,
                    samples=d.samples,
                    resets=d.resets,
                    events=tuple((name, counter.total) for name, counter in d.events.items()),
                )
            )
        return summaries

    def _row(self, key: tuple[str, str], r: Reading, unix_offset_ns: int, late_ns: int) -> Row:
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = _Device(first_ns=r.t_ns, unit_bytes=r.unit_bytes)
        t_ns, last_ns = r.t_ns, device.t_ns
        device.t_ns = device.last_ns = t_ns
        device.samples += 1
        row = Row(t_ns, t_ns + unix_offset_ns, r.kind, r.device, link_Bps=r.link_Bps, late_ns=late_ns)
        if r.gauges:
            for name, value in r.gauges:
                setattr(row, name, value)
        device.link_Bps = r.link_Bps
        if r.events:
            row.events = _count_events(device, r.events)
        if r.rx is None and r.tx is None:
            _raise_peaks(device, row)
            return row
        # Bytes over nanoseconds; None for the first reading and for two at the same time.
        scale = None if last_ns is None or t_ns <= last_ns else r.unit_bytes * 1e9 / (t_ns - last_ns)
        # The units that the link's speed allows, plus a quarter for the uncertainty of the times.
        most = None if scale is None or r.link_Bps is None else 1.25 * r.link_Bps / scale + 1e6
        # The last sample can follow the one before at once; so short an interval gives no peak.
        fair = last_ns is not None and (t_ns - last_ns) * 2 >= self.every_ns
        if r.rx is not None:
            device.has_rx = True
            delta = device.rx.step(r.rx, most)
            row.rx_bytes = device.rx.total * r.unit_bytes
            row.note = device.rx.note
            if delta is not None and scale is not None:
                row.rx_Bps = delta * scale
        if r.tx is not None:
            device.has_tx = True
            delta = device.tx.step(r.tx, most)
            row.tx_bytes = device.tx.total * r.unit_bytes
            row.note = row.note or device.tx.note
            if delta is not None and scale is not None:
                row.tx_Bps = delta * scale
        if r.rx_packets is not None:
            device.rx_packets.step(r.rx_packets)
            row.rx_packets = device.rx_packets.total
        if r.tx_packets is not None:
            device.tx_packets.step(r.tx_packets)
            row.tx_packets = device.tx_packets.total
        if fair:
            _raise_peaks(device, row)
        device.resets += row.note == "reset"
        return row


def _count_events(device: _Device, readings: Sequence[tuple[str, int]]) -> tuple[Event, ...]:
    """Returns the count of each counter since the first sample."""
    for name, raw in readings:
        device.events.setdefault(name, Counter()).step(raw)
    return tuple(Event(name, counter.total) for name, counter in device.events.items())


def _raise_peaks(device: _Device, row: Row) -> None:
    if row.rx_Bps is not None and (device.rx_peak is None or row.rx_Bps > device.rx_peak):
        device.rx_peak = row.rx_Bps
    if row.tx_Bps is not None and (device.tx_peak is None or row.tx_Bps > device.tx_peak):
        device.tx_peak = row.tx_Bps


def default_sources() -> list[CounterSource]:
    """Returns all counter sources of this machine."""
    from wirecost.counters.ethernet import EthernetSource
    from wirecost.counters.infiniband import InfinibandSource
    from wirecost.counters.nvml import nvml_source
    from wirecost.counters.rdma_events import RdmaEventSource
    from wirecost.counters.softirq import SoftirqSource

    sources: list[CounterSource] = [EthernetSource(), InfinibandSource(), RdmaEventSource(), SoftirqSource()]
    gpus = nvml_source()
    return sources if gpus is None else [*sources, gpus]
