"""What this machine offers a job's network, what stands in the way, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wirecost.doctor import emulation, environment, gpudirect, gpus, limits, nccl_values, nics, pace, rdma
from wirecost.doctor.choice import Choice, choose
from wirecost.doctor.finding import Finding, Level, Machine
from wirecost.doctor.rdma_counters import CountersWatch
from wirecost.doctor.settings import settings_of, with_settings


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found. `choice` is what NCCL would take, by the looks of it."""

    choice: Choice
    findings: tuple[Finding, ...]

    def at_least(self, level: Level) -> list[Finding]:
        """The findings of this level and graver ones."""
        order = list(Level)
        return [f for f in self.findings if order.index(f.level) >= order.index(level)]

    def as_json(self) -> dict[str, Any]:
        """Plain data for `--format json`."""
        c = self.choice
        return {
            "transport": {
                "between_hosts": c.between_hosts.value,
                "between_hosts_why": c.between_why,
                "inside_host": c.inside_host.value if c.inside_host else None,
                "inside_host_why": c.inside_why,
            },
            "findings": [
                {"area": f.area, "level": f.level.value, "message": f.message, "remedy": f.remedy}
                for f in self.findings
            ],
        }


def diagnose(machine: Machine | None = None) -> Diagnosis:
    """Looks at this machine (or at `machine`). Works without GPUs, NICs and RDMA devices, and without root."""
    machine = machine or Machine()
    counters = CountersWatch(machine)
    settings = settings_of(machine)
    machine = with_settings(machine, settings)
    cards = gpus.gpus_of(machine)
    interfaces = nics.nics_of(machine)
    ports = rdma.ports_of(machine)
    choice = choose(machine, cards, interfaces, ports)
    findings = [
        *gpus.probe(machine, cards),
        *nics.probe(machine, interfaces),
        *rdma.probe(machine, ports),
        *gpudirect.probe(machine, cards, ports),
        *limits.probe(machine, ports),
        *environment.probe(machine, settings, ports),
        *nccl_values.probe(machine, settings),
        *pace.probe(machine),
        *emulation.probe(machine),
        *counters.probe(),
    ]
    return Diagnosis(choice, tuple(findings))


__all__ = ["Choice", "Diagnosis", "Finding", "Level", "Machine", "diagnose"]
