"""A network as a benchmark of `wirecost bench` or of a study measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wirecost.collectives.document import Document
from wirecost.diagnostics import diagnostic
from wirecost.trace.operations import bus_factor
from wirecost.whatif.network import (
    BEYOND_SHARE,
    FAR_BEYOND,
    SOCKET_GATHERS,
    SOCKET_SHARES,
    NetworkModel,
    Transfer,
)
from wirecost.whatif.nodes import Collective


@dataclass
class BenchmarkNetwork(NetworkModel):
    """Times between the sizes of a benchmark, interpolated; beyond the largest by its last bandwidth.

    `sizes` and `seconds` are of all-reduces in order of size. Other collectives take the time in which an
    all-reduce sends as many bytes. `uncapped`: emulated sockets without a rate of their own, which need the
    processor.
    """

    sizes: Sequence[float] = ()
    seconds: Sequence[float] = ()
    uncapped: bool = False

    def transfer(self, collective: Collective) -> Transfer | None:
        if collective.op == "barrier":
            return Transfer(0.0, 0.0, 0.0)
        if collective.bytes is None:
            return None
        factor, reference = bus_factor(collective.op, collective.size), bus_factor("all_reduce", collective.size)
        size = collective.bytes * (1.0 if factor is None or not reference else factor / reference)
        value = low = high = self._seconds(size)
        if size > FAR_BEYOND * self.sizes[-1]:
            low, high = value * (1 - BEYOND_SHARE), value * (1 + BEYOND_SHARE)
        if self.sockets and collective.op != "all_reduce":
            high *= SOCKET_GATHERS
            value = float(np.sqrt(low * high))
        if self.uncapped:
            low, high = value / SOCKET_SHARES[1], value / SOCKET_SHARES[0]
            value = float(np.sqrt(low * high))
        return Transfer(value, low, high)

    def _seconds(self, size: float) -> float:
        if size <= self.sizes[-1]:
            return float(np.interp(size, self.sizes, self.seconds))
        slope = self.seconds[-1] / self.sizes[-1]
        if len(self.sizes) > 1:
            (before, largest), (faster, slower) = self.sizes[-2:], self.seconds[-2:]
            slope = (slower - faster) / (largest - before)
        return self.seconds[-1] + max(slope, 0.0) * (size - self.sizes[-1])


def benchmark_network(name: str, document: Document, *, uncapped: bool) -> NetworkModel | None:
    """Returns the network of a benchmark of all-reduces over all ranks; None if it holds none.

    Args:
        uncapped: whether it is emulated without a rate of its own.
    """
    by_size: dict[int, list[float]] = {}
    for row in document.rows:
        if row.collective == "all_reduce" and not row.unshaped and row.time_ns > 0:
            by_size.setdefault(row.size_bytes, []).append(row.time_ns)
    if not by_size:
        return None
    sizes = sorted(by_size)
    emulated = document.network.emulated
    found = BenchmarkNetwork(
        name,
        "the study's benchmark",
        sockets=bool(emulated),
        sizes=tuple(float(size) for size in sizes),
        seconds=tuple(float(np.median(by_size[size])) * 1e-9 for size in sizes),
        uncapped=uncapped,
    )
    if uncapped:
        found.diagnostics.append(
            diagnostic(
                "sockets_share_processor",
                f"network '{name}' is TCP without a cap: a benchmark's rate isn't reached in a job that needs the "
                "processor too",
            )
        )
    return found
