"""Transfer times of a job's collectives on another network: calibrated, of a preset, stated, or fitted in the
job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wirecost.costmodel.collectives import all_reduce_s, all_to_all_s, gather_s, group, send_s
from wirecost.costmodel.inputs import Machine
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import SpecError
from wirecost.spec import Cluster
from wirecost.trace.operations import bus_factor
from wirecost.units import BitsPerSecond, format_ns, format_rate_bps
from wirecost.whatif.latency import Latency, steps_of
from wirecost.whatif.nodes import Collective

FAR_BEYOND = 4.0
"""A benchmark's line is taken to hold up to this many times its largest size. Beyond it, the time is an
interval."""
BEYOND_SHARE = 0.15
"""Half width of that interval, as a share of the time."""
SOCKET_GATHERS = 1.5
"""How many times as long as in a benchmark all-gathers and reduce-scatters over TCP with a cap took in sharded
jobs at most (median of a job 1.0 to 1.45, docs/validation/whatif.md). All-reduces took 0.99 to 1.1."""
SOCKET_SHARES = (0.42, 0.85)
"""Shares of a benchmark's rate that TCP sockets without a cap reached inside training jobs: they need the
processor, which the job needs too (docs/how-to/whatif.md, measured jobs)."""


@dataclass(frozen=True)
class Transfer:
    """Seconds of one collective: the estimate, and between which bounds it lies. `wire` are those of its bytes,
    where the network lets some through at once."""

    seconds: float
    low: float
    high: float
    wire: float = 0.0


@dataclass
class NetworkModel:
    """A network that answers how long collectives take. `basis` says what the times rest on."""

    name: str
    basis: str
    diagnostics: list[Diagnostic] = field(default_factory=list)
    sockets: bool = False  # its kernels hold few thread blocks, so that those beside them run as fast as alone

    @property
    def bucket_s(self) -> float:
        """Seconds of bytes that the network lets through at once after a pause as long; 0: none."""
        return 0.0

    def transfer(self, collective: Collective) -> Transfer | None:
        """Returns the transfer time of a collective; None where its size isn't known."""
        raise NotImplementedError


@dataclass
class ClusterNetwork(NetworkModel):
    """A cluster's links, with the benchmarks that were calibrated on it."""

    cluster: Cluster | None = None
    machine: Machine | None = None
    world: int = 1
    uncapped: bool = False
    _memory: dict[tuple[str, int, int, int], Transfer] = field(default_factory=dict)

    def transfer(self, collective: Collective) -> Transfer | None:
        if collective.op == "barrier":
            return Transfer(0.0, 0.0, 0.0)
        if collective.bytes is None:
            return None
        stride = _stride(collective.spans)
        key = (collective.op, collective.bytes, collective.size, stride)
        if key not in self._memory:
            self._memory[key] = self._computed(collective, stride)
        return self._memory[key]

    def _computed(self, collective: Collective, stride: int) -> Transfer:
        assert self.machine is not None and self.cluster is not None and collective.bytes is not None
        size = float(collective.bytes)
        world = float(max(self.world, collective.size * stride))
        members = group(float(collective.size), float(stride), world, self.machine)
        op = collective.op
        if op == "all_reduce":
            seconds = all_reduce_s(size, members, self.machine)
        elif op in ("all_gather", "reduce_scatter"):
            seconds = gather_s(size, members, self.machine, op)
        elif op == "all_to_all":
            seconds = all_to_all_s(size, members, self.machine)
        elif op in ("send", "recv", "send_recv"):
            seconds = send_s(size, float(self.cluster.gpus_per_node <= stride), self.machine)
        else:
            seconds = gather_s(size, members, self.machine)
        value = float(seconds)
        low = high = value
        largest = self._largest(op, collective.size)
        if largest is not None and size > FAR_BEYOND * largest:
            low, high = value * (1 - BEYOND_SHARE), value * (1 + BEYOND_SHARE)
        if self.sockets and not self.uncapped and op in ("all_gather", "reduce_scatter"):
            low, high = min(low, value), max(high, value * SOCKET_GATHERS)
            value = float(np.sqrt(low * high))
        if self.uncapped:
            low, high = value / SOCKET_SHARES[1], value / SOCKET_SHARES[0]
            value = float(np.sqrt(low * high))
        return Transfer(value, low, high)

    def _largest(self, op: str, size: int) -> float | None:
        if self.machine is None:
            return None
        sizes = [c.largest_bytes for c in self.machine.curves if c.collective == op and c.ranks == size]
        return float(max(sizes)) if sizes else None


@dataclass
class StatedNetwork(NetworkModel):
    """A bandwidth and a latency: time = latency + bytes on the wire of one rank / bandwidth.

    Attributes:
        rate_Bps: bytes per second in each direction of a rank.
        latency_s: time in seconds of an empty collective. None if the network states none: it is then that of the
            recorded job, `learned`.
        delay_s: time in seconds by which the network delays each step of a collective, if `latency_s` is None.
        bucket_bytes: size in bytes of the token bucket that shapes each rank's link; 0: none does.
    """

    rate_Bps: float = 0.0
    latency_s: float | None = None
    delay_s: float = 0.0
    bucket_bytes: float = 0.0
    learned: Latency = field(default_factory=Latency)

    @property
    def bucket_s(self) -> float:
        return self.bucket_bytes / self.rate_Bps

    def transfer(self, collective: Collective) -> Transfer | None:
        low, middle, high = self._latency(collective)
        if collective.op == "barrier":
            return Transfer(middle, low, high)
        if collective.bytes is None:
            return None
        factor = bus_factor(collective.op, collective.size)
        bytes_s = (1.0 if factor is None else factor) * collective.bytes / self.rate_Bps
        return Transfer(middle + bytes_s, low + bytes_s, high + bytes_s, wire=bytes_s)

    def _latency(self, collective: Collective) -> tuple[float, float, float]:
        if self.latency_s is not None:
            return self.latency_s, self.latency_s, self.latency_s
        delay_s = self.delay_s * steps_of(collective.op, collective.size)
        low, middle, high = self.learned.of(collective.op, collective.size)
        return low + delay_s, middle + delay_s, high + delay_s

    def with_latency(self, learned: Latency) -> StatedNetwork:
        """Returns the network with a latency that was learned, if it states none."""
        if self.latency_s is not None or not learned.is_known:
            return self
        low, middle, high = learned.of_any
        found = diagnostic(
            "latency_learned",
            f"network '{self.name}' states no latency: each step of a collective takes "
            f"{format_ns(middle * 1e9, 3)} besides its bytes ({format_ns(low * 1e9, 3)} to "
            f"{format_ns(high * 1e9, 3)}), as small messages of the recording did",
        )
        return replace(self, learned=learned, diagnostics=[*self.diagnostics, found])


@dataclass
class FittedNetwork(NetworkModel):
    """The network that the job ran on: a latency and a rate for each operation, fitted to its own transfers."""

    lines: dict[str, tuple[float, float]] = field(default_factory=dict)

    def transfer(self, collective: Collective) -> Transfer | None:
        if collective.bytes is None:
            return None
        line = self.lines.get(collective.op)
        if line is None:
            return None
        seconds = line[0] + line[1] * collective.bytes
        return Transfer(seconds, seconds, seconds)

    def rate_Bps(self, op: str, size: int) -> float | None:
        """Returns the bus bandwidth of an operation in bytes per second."""
        line, factor = self.lines.get(op), bus_factor(op, size)
        return None if line is None or not factor or line[1] <= 0 else factor / line[1]


def _stride(members: str) -> int:
    """Returns how far apart a group's neighbours are from its ranks as text, `[0, 8, 16]`; 1 where it isn't
    told."""
    try:
        ranks = json.loads(members) if members.startswith("[") else []
    except ValueError:
        return 1
    if not isinstance(ranks, list) or len(ranks) < 2 or not all(type(r) is int for r in ranks[:2]):
        return 1
    return max(abs(ranks[1] - ranks[0]), 1)


def fitted_network(collectives: Sequence[Collective]) -> FittedNetwork:
    """Returns the network fitted to a job's own transfers: time = latency + bytes x slope for each operation, by
    medians of each size."""
    by_op: dict[str, dict[int, list[int]]] = {}
    for collective in collectives:
        if collective.bytes and collective.transfer_ns > 0 and collective.known:
            by_op.setdefault(collective.op, {}).setdefault(collective.bytes, []).append(collective.transfer_ns)
    lines = {op: line_through(sizes) for op, sizes in by_op.items()}
    return FittedNetwork("as recorded", "transfers of the job itself", lines=lines)


def line_through(sizes: dict[int, list[int]]) -> tuple[float, float]:
    size = np.array(sorted(sizes), dtype=float)
    time = np.array([np.median(sizes[int(s)]) for s in size]) * 1e-9
    if len(size) == 1 or size[-1] < 1.5 * size[0]:
        return 0.0, float(np.sum(time) / np.sum(size))
    # Relative errors count alike at all sizes.
    matrix = np.stack([np.ones(len(size)), size], axis=1) / time[:, None]
    (latency, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(size)), rcond=None)
    if latency < 0 or slope <= 0:
        return 0.0, float(np.sum(time) / np.sum(size))
    return float(latency), float(slope)


def stated_network(rate_bps: float, latency_s: float | None, name: str | None = None) -> StatedNetwork:
    """Returns a network of a stated bandwidth and latency (None: none is stated), by default named after its rate.

    Raises:
        SpecError: for a bandwidth that isn't positive, or a negative latency.
    """
    if rate_bps <= 0:
        raise SpecError("--bandwidth: a rate must be positive")
    if latency_s is not None and latency_s < 0:
        raise SpecError("--latency: a latency can't be negative")
    return StatedNetwork(
        name or format_rate_bps(BitsPerSecond(rate_bps)), "stated", rate_Bps=rate_bps / 8, latency_s=latency_s
    )
