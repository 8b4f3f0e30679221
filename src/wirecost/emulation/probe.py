"""Measures the rate and the round-trip time of the links between emulated hosts, after shaping."""

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
"""Largest shortfall of a link from its nominal rate, as a fraction. A link with a larger one is refused."""
RETRY_PAUSES_S = (0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Pauses in seconds before further measurements of a link that is too slow."""
WORTH_WAITING = 0.8
"""Fraction of the nominal rate from which the machine may only be busy, so that a later measurement may pass."""


class LinkMeasurement(BaseModel):
    """Rates and round-trip time of the links while every host sends to its neighbour, as in a ring all-reduce.

    Attributes:
        rates_bps: TCP goodput of each host.
        round_trip_ns: round-trip time of a small message to the neighbour before the bulk transfer. It is the
            median over the hosts of each host's median.
        unshaped_bytes: largest message that passes unshaped, or None without a nominal rate.
        congestion_control: TCP congestion control of the hosts, see `EmulatedHosts`.
        in_order: whether packets keep their order, see `EmulatedHosts`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nominal_rate_bps: float | None
    rates_bps: tuple[float, ...]
    round_trip_ns: int
    unshaped_bytes: int | None
    congestion_control: str | None = None
    in_order: bool | None = None

    @property
    def rate_bps(self) -> float:
        """Goodput of the slowest host in bits per second, which is the rate of a ring."""
        return min(self.rates_bps)


def measure_links(hosts: EmulatedHosts) -> LinkMeasurement:
    """Measures every host's link, which takes about a second.

    Raises:
        TimeoutError: if hosts can't reach each other.
    """
    rate = hosts.emulation.rate
    # TCP needs some time to reach the rate. The measured part is many times the size of the token bucket.
    skip = UNCAPPED_BYTES // 4 if rate is None else max(int(rate / 8 * RAMP_S), 2 * burst_bytes(rate))
    volume = UNCAPPED_BYTES if rate is None else skip + max(int(rate / 8 * MEASURE_S), 20 * burst_bytes(rate))
    context = multiprocessing.get_context("fork")
    pings_done = context.Barrier(2 * hosts.count)
    processes, results = [], []
    for host in range(hosts.count):
        receiver, result = context.Pipe(duplex=False)
        target = (host + 1) % hosts.count
        for role, arguments in (
            (_receive, (hosts, host, skip, result, pings_done)),
            (_send, (hosts, host, target, volume, pings_done)),
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
    """Returns the fastest of a few measurements.

    A busy machine makes a link appear slower, and nothing makes it appear faster. A link that is too slow is
    measured again, at most once for each of `RETRY_PAUSES_S`.

    Raises:
        TimeoutError: if hosts can't reach each other.
    """
    best = measure_links(hosts)
    for pause_s in RETRY_PAUSES_S:
        hopeless = pause_s and best.rate_bps < WORTH_WAITING * (best.nominal_rate_bps or 0.0)
        if too_slow(best) is None or hopeless:
            break
        time.sleep(pause_s)
        best = max(best, measure_links(hosts), key=lambda m: m.rate_bps)
    return best


def too_slow(link: LinkMeasurement) -> str | None:
    """Returns a message that says why a link doesn't give its nominal rate, or None if it does."""
    nominal = link.nominal_rate_bps
    if nominal is None or link.rate_bps >= nominal * (1 - RATE_TOLERANCE):
        return None
    return (
        f"this machine reaches {format_rate_bps(link.rate_bps, 3)} between {len(link.rates_bps)} emulated hosts, "
        f"not {format_rate_bps(nominal, 3)}; use a slower network, fewer hosts, or a less busy machine"
    )


def _receive(hosts: EmulatedHosts, host: int, skip: int, result: Connection, pings_done: Barrier) -> None:
    """Receives from the neighbour in a process on `host`, and sends the rate in b/s and the round-trip time in
    ns to `result`. The first `skip` bytes aren't measured."""
    with hosts.inside(host):
        listener = socket.create_server(("0.0.0.0", PORT))  # noqa: S104 - inside a namespace of our own
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(PINGS):
        connection.sendall(connection.recv(1))
    pings_done.wait(TIMEOUT_S)
    buffer = bytearray(CHUNK)
    received, start_ns, start_bytes = 0, 0, 0
    while size := connection.recv_into(buffer):
        received += size
        if not start_ns and received >= skip:
            start_ns, start_bytes = time.perf_counter_ns(), received
    elapsed_ns = time.perf_counter_ns() - start_ns
    connection.close()
    result.send(((received - start_bytes) * 8e9 / elapsed_ns, _read_trip(listener)))


def _read_trip(listener: socket.socket) -> float:
    """Receives the sender's round-trip time in ns, which arrives over a second connection after the bulk
    transfer."""
    connection, _ = listener.accept()
    with connection:
        return float(connection.makefile("r").readline())


def _send(hosts: EmulatedHosts, host: int, target: int, volume: int, pings_done: Barrier) -> None:
    """Sends pings and then `volume` bytes to `target` in a process on `host`, and then the measured round-trip
    time."""
    with hosts.inside(host):
        connection = _connect(hosts.address(target))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(PINGS):
            start = time.perf_counter_ns()
            connection.sendall(b"p")
            connection.recv(1)
            trips.append(time.perf_counter_ns() - start)
        pings_done.wait(TIMEOUT_S)
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
            # The neighbour may not be listening yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
