"""Opens the network of a run: creates its emulated hosts, if it has any, and measures their links."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.probe import LinkMeasurement, measure_best
from wirecost.spec.network import Network


@dataclass(frozen=True)
class RunningNetwork:
    """A network that is ready for a run.

    Attributes:
        hosts: the emulated hosts, or None on a native network.
        link: the measured links, or None on a native network and with a single host.
    """

    hosts: EmulatedHosts | None = None
    link: LinkMeasurement | None = None


@contextmanager
def open_network(network: Network, hosts: int) -> Iterator[RunningNetwork]:
    """Builds an emulated network and measures its links. The network ends with the context.

    Args:
        hosts: the number of emulated hosts.

    Raises:
        UnsupportedError: if the kernel lacks what the network needs. The message says what to do.
        TimeoutError: if hosts can't reach each other.
    """
    if network.emulate is None:
        yield RunningNetwork()
        return
    with EmulatedHosts(hosts, network.emulate) as emulated:
        yield RunningNetwork(emulated, measure_best(emulated) if hosts > 1 else None)
