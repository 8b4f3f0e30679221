"""Checks NCCL's environment variables for those that disable a transport or contradict the machine."""

from __future__ import annotations

from collections.abc import Iterator

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine
from wirecost.doctor.nccl_values import is_on
from wirecost.doctor.rdma import Port
from wirecost.doctor.settings import Settings

# Variables that disable a transport.
_SWITCHES = {
    "NCCL_P2P_DISABLE": "peer access between GPUs",
    "NCCL_SHM_DISABLE": "shared memory inside the host",
    "NCCL_IB_DISABLE": "RDMA",
}


def probe(machine: Machine, settings: Settings, ports: list[Port]) -> Iterator[Diagnostic]:
    environment = machine.environment
    yield from settings.diagnostics
    for name, what in _SWITCHES.items():
        if is_on(environment, name) and (name != "NCCL_IB_DISABLE" or ports):
            yield diagnostic(
                "nccl_transport_disabled",
                f"{settings.named(name)} switches off {what}",
                remedy=f"unset {name} in {settings.source_of(name)}, unless you test",
            )
    hca = environment.get("NCCL_IB_HCA", "")
    if hca and ports:
        excluded = hca.startswith("^")
        prefixes = [part.partition(":")[0] for part in hca.lstrip("^=").split(",") if part]
        exact = hca.lstrip("^").startswith("=")
        matched = {
            p.device for p in ports for a in prefixes if (p.device == a if exact else p.device.startswith(a))
        }
        usable = {p.device for p in ports} - matched if excluded else matched
        if not usable:
            yield diagnostic(
                "nccl_hca_matches_nothing",
                f"NCCL_IB_HCA={hca} excludes all of this machine's RDMA devices",
                remedy=f"name one of: {', '.join(sorted({p.device for p in ports}))}",
            )
    if environment.get("NCCL_IB_DISABLE") == "0" and not ports:
        yield diagnostic(
            "nccl_ib_permitted_only",
            "NCCL_IB_DISABLE=0 is set, which only permits RDMA: there is no device here to use",
        )
