"""What this machine offers a job's network, what stands in the way, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wirecost.diagnostics import Area, Diagnostic, Severity, area_of
from wirecost.doctor import emulation, environment, gpudirect, gpus, limits, nccl_values, nics, pace, rdma
from wirecost.doctor.choice import Choice, choose
from wirecost.doctor.machine import Machine
from wirecost.doctor.rdma_counters import CountersWatch
from wirecost.doctor.settings import settings_of, with_settings

SCHEMA_VERSION = 2

_FORMER_LEVELS = {Severity.OK: "ok", Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "problem"}
"""The levels of schema version 1."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor found out. `choice` is the transport that NCCL would probably use."""

    choice: Choice
    diagnostics: tuple[Diagnostic, ...]

    def at_least(self, severity: Severity) -> list[Diagnostic]:
        """Returns the diagnostics of this severity and graver ones."""
        return [d for d in self.diagnostics if d.severity.is_at_least(severity)]

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for `--format json`. The key `findings` is for readers of schema version 1."""
        c = self.choice
        return {
            "schema_version": SCHEMA_VERSION,
            "transport": {
                "between_hosts": c.between_hosts.value,
                "between_hosts_why": c.between_why,
                "inside_host": c.inside_host.value if c.inside_host else None,
                "inside_host_why": c.inside_why,
            },
            "diagnostics": [d.as_json() | {"area": area_of(d.code).value} for d in self.diagnostics],
            "findings": [
                {
                    "area": _former_area(d.code),
                    "level": _FORMER_LEVELS[d.severity],
                    "message": f"{d.subject}: {d.message}" if d.subject else d.message,
                    "remedy": d.remedy,
                }
                for d in self.diagnostics
            ],
        }


def _former_area(code: str) -> str:
    """Returns the area that schema version 1 names: the counters that the doctor reads are those of RDMA ports."""
    area = area_of(code)
    return Area.RDMA.value if area is Area.COUNTERS else area.value


def diagnose(machine: Machine | None = None) -> Diagnosis:
    """Examines this machine, or `machine`. Works without GPUs, NICs and RDMA devices, and without root."""
    machine = machine or Machine()
    counters = CountersWatch(machine)
    settings = settings_of(machine)
    machine = with_settings(machine, settings)
    cards = gpus.gpus_of(machine)
    interfaces = nics.nics_of(machine)
    ports = rdma.ports_of(machine)
    choice = choose(machine, cards, interfaces, ports)
    diagnostics = [
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
    return Diagnosis(choice, tuple(diagnostics))


__all__ = ["Choice", "Diagnosis", "Machine", "diagnose"]
