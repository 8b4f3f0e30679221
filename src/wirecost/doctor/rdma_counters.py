"""Errors and congestion that RDMA ports have counted, and those that they count while the doctor looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wirecost.counters.interface import Reading
from wirecost.counters.rdma_events import RdmaEventSource
from wirecost.counters.rdma_findings import RdmaFinding, during, since_start
from wirecost.doctor.finding import Finding, Level, Machine

AREA = "rdma"


class CountersWatch:
    """The counters of a machine's ports at a first moment and at a later one."""

    def __init__(self, machine: Machine) -> None:
        self._source = RdmaEventSource(machine.root)
        self._before = self._source.read()

    def probe(self) -> Iterator[Finding]:
        """Reads again, and yields what was counted in between, and before."""
        after = {reading.device: reading for reading in self._source.read()}
        self._source.close()
        yield from _findings(self._before, after)


def _findings(before: Sequence[Reading], after: dict[str, Reading]) -> Iterator[Finding]:
    for first in before:
        counts = dict(first.events)
        second = after.get(first.device)
        if second is not None:
            seconds = (second.t_ns - first.t_ns) * 1e-9
            new = {name: count - counts.get(name, count) for name, count in second.events}
            for finding in during(new, first.device, seconds, first.link_Bps):
                yield _finding(finding, f" in {seconds:.1f} s")
        for finding in since_start(counts, first.device):
            yield _finding(finding, "")


def _finding(finding: RdmaFinding, when: str) -> Finding:
    level = Level.WARNING if finding.grave else Level.NOTE
    return Finding(AREA, level, f"{finding.device}{when}: {finding.message}", finding.remedy)
