"""Errors and congestion that RDMA ports have counted, and those that they count while the doctor looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wirecost.counters.interface import Reading
from wirecost.counters.rdma_diagnostics import during, since_start
from wirecost.counters.rdma_events import RdmaEventSource
from wirecost.diagnostics import Diagnostic
from wirecost.doctor.machine import Machine


class CountersWatch:
    """The counters of a machine's ports at a first moment and at a later one."""

    def __init__(self, machine: Machine) -> None:
        self._source = RdmaEventSource(machine.root)
        self._before = self._source.read()

    def probe(self) -> Iterator[Diagnostic]:
        """Reads again, and yields what was counted in between, and before."""
        after = {reading.device: reading for reading in self._source.read()}
        self._source.close()
        yield from _diagnostics(self._before, after)


def _diagnostics(before: Sequence[Reading], after: dict[str, Reading]) -> Iterator[Diagnostic]:
    for first in before:
        counts = dict(first.events)
        second = after.get(first.device)
        if second is not None:
            seconds = (second.t_ns - first.t_ns) * 1e-9
            new = {name: count - counts.get(name, count) for name, count in second.events}
            for counted in during(new, first.device, seconds, first.link_Bps):
                yield replace(counted, message=f"in {seconds:.1f} s: {counted.message}")
        yield from since_start(counts, first.device)
