"""The network of a run: its emulated hosts, where it has any, and what their links really give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.probe import LinkMeasurement, measure_best
from wirecost.spec.network import Network


@dataclass(frozen=True)
class RunningNetwork:
    """`hosts` is None on a native network, `link` also with a single host: there is nothing to measure."""

    hosts: EmulatedHosts | None = None
    link: LinkMeasurement | None = None


@contextmanager
def open_network(network: Network, hosts: int) -> Iterator[RunningNetwork]:
    """Builds an emulated network and measures its links; it vanishes with the context.

    Raises:
        UnsupportedError: for what the kernel lacks, with what to do.
        TimeoutError: if hosts can't reach each other.
    """
    if network.emulate is None:
        yield RunningNetwork()
        return
    with EmulatedHosts(hosts, network.emulate) as emulated:
        yield RunningNetwork(emulated, measure_best(emulated) if hosts > 1 else None)
