"""What the files of a finished run tell about its network and its machine, for models and commands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from wirecost.breakdown import NetworkRecord
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.emulation.probe import LinkMeasurement
from wirecost.emulation.segments import Segments
from wirecost.ncclog import not_as_asked, read_logs
from wirecost.spec import AnyExperiment
from wirecost.study.over_time import LinkUse, read_over_time
from wirecost.study.store_errors import StoreError

LOSSY = 0.01
"""Share of retransmitted TCP segments from which on a result has a diagnostic. Each may stall its connection for
200 ms, Linux's shortest wait for an acknowledgement.
"""
BUSY = 0.15
"""Share of all cores used by other programs from which on a result has a diagnostic."""


def read_link(directory: Path) -> LinkMeasurement | None:
    """Returns the measurement of the emulated links of a run; None if there is none."""
    path = directory / "link.json"
    return LinkMeasurement.model_validate_json(path.read_bytes()) if path.exists() else None


def network_record(
    experiment: AnyExperiment, directory: Path, link: LinkMeasurement | None, transport: str | None
) -> tuple[NetworkRecord, list[Diagnostic]]:
    """Returns the record of a run's network, with diagnostics."""
    retransmitted = _retransmitted_share(directory)
    use, uncounted = _link_use(directory)
    record = NetworkRecord(
        name=experiment.network.name,
        emulated=experiment.network.emulate is not None,
        transport=transport,
        nominal_rate_bps=link.nominal_rate_bps if link else None,
        measured_rate_bps=link.rate_bps if link else None,
        mean_use_bps=use.mean_Bps * 8 if use else None,
        peak_use_bps=use.peak_Bps * 8 if use else None,
        tcp_retransmitted=retransmitted,
    )
    return record, [*_lossy(retransmitted, link), *uncounted]


def proven_transport(experiment: AnyExperiment, logs: Iterable[Path]) -> tuple[str, list[Diagnostic]]:
    """Returns the transport that NCCL's logs prove, with a diagnostic if it isn't the one that was asked for."""
    verdict = read_logs(sorted(logs))
    asked = "tcp" if experiment.network.emulate is not None else experiment.network.transport
    mismatch = not_as_asked(verdict, asked) if asked else None
    return str(verdict.verdict), [mismatch] if mismatch else []


def shared_cores(ranks: int, cores: int) -> Diagnostic:
    """Returns the diagnostic of emulated hosts with more ranks than processor cores."""
    return diagnostic(
        "shared_cores",
        f"{ranks} ranks share {cores} processor cores: compute is slower than on hosts of their own, so the "
        "communication share is a lower bound",
    )


def busy(directory: Path) -> list[Diagnostic]:
    """Returns a diagnostic if other programs used the processors before or during the run."""
    path = directory / "machine.json"
    machine = json.loads(path.read_bytes()) if path.exists() else {}
    before, during = machine.get("busy_fraction_before"), machine.get("others_fraction_during")
    if during is not None and during > BUSY:
        when = f"used more than {BUSY:.0%} of the processors while the experiment ran"
    elif before is not None and before > BUSY:
        when = "kept the processors busy when the experiment began"
    else:
        return []
    message = f"other programs {when}: its times are too long, most of all compute"
    return [diagnostic("busy_machine", message)]


def _retransmitted_share(directory: Path) -> float | None:
    """Returns the share of TCP's segments that were sent again; None if it is unknown."""
    path = directory / "tcp.json"
    if not path.exists():
        return None
    segments = Segments.model_validate_json(path.read_bytes())
    return segments.retransmitted / segments.sent if segments.sent else None


def _link_use(directory: Path) -> tuple[LinkUse | None, list[Diagnostic]]:
    """Returns the use of the link, which is None if it is unknown, with a diagnostic if its file can't be read."""
    try:
        over_time = read_over_time(directory)
    except StoreError as error:
        message = f"the network counters of the run can't be read, so its use of the link is not known: {error}"
        return None, [diagnostic("counters_unreadable", message)]
    return over_time.link_use() if over_time else None, []


def _lossy(share: float | None, link: LinkMeasurement | None) -> list[Diagnostic]:
    if share is None or share < LOSSY:
        return []
    why, remedy = "segments were lost, and connections that wait for one stand still", None
    if link and link.in_order is None:
        why = "segments were lost or overtook each other"
    elif link and not link.in_order:
        why = "behind the shapers packets overtake each other"
        remedy = "run it as root itself, who may keep them in order"
    message = f"TCP sent {share:.1%} of its segments again: {why}; communication takes longer than the rate allows"
    return [diagnostic("tcp_retransmits", message, remedy=remedy)]
