"""NCCL's environment variables: those that switch something off, and those that contradict the machine."""

from __future__ import annotations

from collections.abc import Iterator

from wirecost.doctor.finding import Finding, Level, Machine
from wirecost.doctor.nccl_values import is_on
from wirecost.doctor.rdma import Port
from wirecost.doctor.settings import Settings

AREA = "environment"

# Variables that take a transport away.
_SWITCHES = {
    "NCCL_P2P_DISABLE": "peer access between GPUs",
    "NCCL_SHM_DISABLE": "shared memory inside the host",
    "NCCL_IB_DISABLE": "RDMA",
}


def probe(machine: Machine, settings: Settings, ports: list[Port]) -> Iterator[Finding]:
    environment = machine.environment
    yield from settings.findings
    for name, what in _SWITCHES.items():
        if is_on(environment, name) and (name != "NCCL_IB_DISABLE" or ports):
            yield Finding(
                AREA,
                Level.WARNING,
                f"{settings.named(name)} switches off {what}",
                f"unset {name} in {settings.source_of(name)}, unless you test",
            )
    hca = environment.get("NCCL_IB_HCA", "")
    if hca and ports:
        excluded = hca.startswith("^")
        asked = [part.partition(":")[0] for part in hca.lstrip("^=").split(",") if part]
        exact = hca.lstrip("^").startswith("=")
        matched = {p.device for p in ports for a in asked if (p.device == a if exact else p.device.startswith(a))}
        left = {p.device for p in ports} - matched if excluded else matched
        if not left:
            yield Finding(
                AREA,
                Level.PROBLEM,
                f"NCCL_IB_HCA={hca} leaves none of this machine's RDMA devices",
                f"name one of: {', '.join(sorted({p.device for p in ports}))}",
            )
    if environment.get("NCCL_IB_DISABLE") == "0" and not ports:
        yield Finding(
            AREA,
            Level.NOTE,
            "NCCL_IB_DISABLE=0 is set, which only permits RDMA: there is no device here to use",
            "in a container pass the RDMA devices in",
        )
