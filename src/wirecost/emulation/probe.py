"""What the links between emulated hosts really give, measured after shaping."""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from pydantic import BaseModel, ConfigDict

from wirecost.emulation.hosts import EmulatedHosts, burst_bytes
from wirecost.units import format_rate_bps

PORT = 7077
CHUNK = 256 << 10
UNCAPPED_BYTES = 512 << 20
RAMP_S = 0.4
MEASURE_S = 0.8
PINGS = 200
TIMEOUT_S = 30.0
RATE_TOLERANCE = 0.05
"""A link that gives less than its nominal rate by more than this is not the network that was asked for."""
AGAIN_AFTER_S = (0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0)
NEARLY = 0.8
"""From this part of the nominal rate on the machine may only be busy, which passes: worth waiting for."""


class LinkMeasurement(BaseModel):
    """All hosts sending to their neighbour at once, as the ring of an all-reduce does.

    `rates_bps` is each host's TCP goodput; `rate_bps` the slowest, which a ring runs at. `round_trip_ns` is
    the median over hosts of each one's median for a small message to its neighbour and back, before the bulk.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nominal_rate_bps: float | None
    rates_bps: tuple[float, ...]
    round_trip_ns: int
    unshaped_bytes: int | None
    congestion_control: str | None = None  # TCP's
    in_order: bool | None = None  # as EmulatedHosts says

    @property
    def rate_bps(self) -> float:
        return min(self.rates_bps)


def measure_links(hosts: EmulatedHosts) -> LinkMeasurement:
    """Measures every host's link; takes about a second.

    Raises:
        TimeoutError: if hosts can't reach each other.
    """
    rate = hosts.emulation.rate
    # TCP ramps up behind full queues first; what is measured outlasts the token bucket many times over.
    skip = UNCAPPED_BYTES // 4 if rate is None else max(int(rate / 8 * RAMP_S), 2 * burst_bytes(rate))
    volume = UNCAPPED_BYTES if rate is None else skip + max(int(rate / 8 * MEASURE_S), 20 * burst_bytes(rate))
    context = multiprocessing.get_context("fork")
    quiet = context.Barrier(2 * hosts.count)
    processes, results = [], []
    for host in range(hosts.count):
        receiver, to_us = context.Pipe(duplex=False)
        target = (host + 1) % hosts.count
        for role, arguments in (
            (_receive, (hosts, host, skip, to_us, quiet)),
            (_send, (hosts, host, target, volume, quiet)),
        ):
            process: Any = context.Process(target=role, args=arguments, daemon=True)
            process.start()
            processes.append(process)
        results.append(receiver)
    expected_s = volume * 8 / rate if rate else 0.0
    deadline = time.monotonic() + TIMEOUT_S + 4 * expected_s
    rates, trips = [], []
    try:
        for host, receiver in enumerate(results):
            if not receiver.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"host {host} received nothing from its neighbour over the emulated network")
            bps, trip = receiver.recv()
            rates.append(bps)
            trips.append(trip)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return LinkMeasurement(
        nominal_rate_bps=rate,
        rates_bps=tuple(rates),
        round_trip_ns=round(statistics.median(trips)),
        unshaped_bytes=None if rate is None else burst_bytes(rate),
        congestion_control=hosts.congestion_control,
        in_order=hosts.in_order,
    )


def measure_best(hosts: EmulatedHosts) -> LinkMeasurement:
    """The best of a few measurements: a busy machine makes a link look slower, nothing makes it look faster."""
    best = measure_links(hosts)
    for pause_s in AGAIN_AFTER_S:
        hopeless = pause_s and best.rate_bps < NEARLY * (best.nominal_rate_bps or 0.0)
        if too_slow(best) is None or hopeless:
            break
        time.sleep(pause_s)
        best = max(best, measure_links(hosts), key=lambda m: m.rate_bps)
    return best


def too_slow(link: LinkMeasurement) -> str | None:
    """Why a link is not the network that was asked for; None if it is."""
    nominal = link.nominal_rate_bps
    if nominal is None or link.rate_bps >= nominal * (1 - RATE_TOLERANCE):
        return None
    return (
        f"this machine reaches {format_rate_bps(link.rate_bps, 3)} between {len(link.rates_bps)} emulated hosts, "
        f"not {format_rate_bps(nominal, 3)}; use a slower network, fewer hosts, or a less busy machine"
    )


def _receive(hosts: EmulatedHosts, host: int, skip: int, to_us: Connection, quiet: Barrier) -> None:
    with hosts.inside(host):
        listener = socket.create_server(("0.0.0.0", PORT))  # noqa: S104 - inside a namespace of our own
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(PINGS):
        connection.sendall(connection.recv(1))
    quiet.wait(TIMEOUT_S)
    buffer = bytearray(CHUNK)
    received, start_ns, start_bytes = 0, 0, 0
    while size := connection.recv_into(buffer):
        received += size
        if not start_ns and received >= skip:
            start_ns, start_bytes = time.perf_counter_ns(), received
    elapsed_ns = time.perf_counter_ns() - start_ns
    connection.close()
    to_us.send(((received - start_bytes) * 8e9 / elapsed_ns, _read_trip(listener)))


def _read_trip(listener: socket.socket) -> float:
    """The sender's round-trip time arrives over a second connection, after the bulk."""
    connection, _ = listener.accept()
    with connection:
        return float(connection.makefile("r").readline())


def _send(hosts: EmulatedHosts, host: int, target: int, volume: int, quiet: Barrier) -> None:
    with hosts.inside(host):
        connection = _connect(hosts.address(target))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(PINGS):
            start = time.perf_counter_ns()
            connection.sendall(b"p")
            connection.recv(1)
            trips.append(time.perf_counter_ns() - start)
        quiet.wait(TIMEOUT_S)
        chunk = bytes(CHUNK)
        for _ in range(-(-volume // CHUNK)):
            connection.sendall(chunk)
        connection.close()
        with _connect(hosts.address(target)) as report:
            report.sendall(f"{statistics.median(trips)}\n".encode())


def _connect(address: str) -> socket.socket:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=TIMEOUT_S)
        except OSError:
            # The neighbour may not listen yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
