"""The rows of `wirecost run`: a command over each network, and where another rate would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirecost.breakdown import Breakdown, Ratio, Share, Spread, ratio_of_medians
from wirecost.breakdown.shares import divided
from wirecost.spec import AnyExperiment, JobExperiment, workload_name
from wirecost.study import Result, Status


@dataclass(frozen=True)
class JobRow:
    """One run of a command. None is unknown.

    Attributes:
        hosts: number of hosts; 1 for a network inside one.
        iteration_ns: median and quartiles of the iteration time of the slowest rank.
        exposed: share of communication that computation doesn't hide.
        hidden: share of communication that computation hides.
        transfer: part of `exposed` in which data moves.
        wait: part of `exposed` in which a rank waits for one that is late, or a pipeline's stage for its
            neighbour.
        transport: the transport that NCCL's log proves, or `tcp` with gloo.
        rate_bps: measured rate of an emulated link.
        mean_use_bps, peak_use_bps: use of the busiest interface in one direction.
        ratio: iteration time over that of the first row of the same command.
        unknown: why the shares are unknown.
    """

    workload: str
    network: str
    emulated: bool
    hosts: int
    ranks: int
    status: Status
    reason: str | None
    iteration_ns: Spread | None = None
    times_ns: tuple[int, ...] = ()
    exposed: Share | None = None
    hidden: Share | None = None
    transfer: Share | None = None
    wait: Share | None = None
    transport: str | None = None
    rate_bps: float | None = None
    mean_use_bps: float | None = None
    peak_use_bps: float | None = None
    ratio: Ratio | None = None
    unknown: str | None = None


def job_rows(results: Sequence[Result]) -> list[JobRow]:
    """Returns a row for each run of a command, from the network with the shortest iteration to the one with the
    longest. Runs without a result come last.
    """
    rows = [_row(r) for r in results if isinstance(r.experiment, JobExperiment)]
    rows.sort(key=lambda r: (r.workload, r.ranks, r.iteration_ns.median if r.iteration_ns else float("inf")))
    first: dict[tuple[str, int], JobRow] = {}
    compared = []
    for row in rows:
        reference = first.setdefault((row.workload, row.ranks), row)
        ratio = ratio_of_medians(row.times_ns, reference.times_ns) if reference is not row else None
        compared.append(replace(row, ratio=ratio))
    return compared


def _row(result: Result) -> JobRow:
    experiment: AnyExperiment = result.experiment
    b = result.breakdown
    row = JobRow(
        workload=workload_name(experiment),
        network=experiment.network.name,
        emulated=experiment.network.emulate is not None,
        hosts=experiment.hosts,
        ranks=b.world_size if b else experiment.ranks,
        status=result.outcome.status,
        reason=result.outcome.reason,
    )
    if b is None:
        return row
    known = b.network
    return replace(
        row,
        iteration_ns=b.iteration_ns(),
        times_ns=tuple(b.iteration_times_ns()),
        **_shares(b),
        transport=known.transport if known else None,
        rate_bps=known.measured_rate_bps if known else None,
        mean_use_bps=known.mean_use_bps if known else None,
        peak_use_bps=known.peak_use_bps if known else None,
        unknown=b.profile.reason if b.profile else "unknown: no iterations were profiled",
    )


def _shares(b: Breakdown) -> dict[str, Share | None]:
    """Returns the shares of a row; None is unknown. `transfer` and `wait` sum to `exposed`."""
    exposed = b.share("exposed_comm_ns")
    transfer, wait = divided(exposed, b.profile) or (None, None)
    return {"exposed": exposed, "hidden": b.share("overlapped_ns"), "transfer": transfer, "wait": wait}


def as_dict(row: JobRow) -> dict[str, Any]:
    """Returns a row as flat data for JSON and CSV. Times are in milliseconds, rates in Gb/s; None is unknown."""
    time, ratio = row.iteration_ns, row.ratio
    data: dict[str, Any] = {
        "workload": row.workload,
        "network": row.network,
        "emulated": row.emulated,
        "hosts": row.hosts,
        "ranks": row.ranks,
        "status": str(row.status),
        "reason": row.reason,
        "iterations": time.n if time else None,
        "iteration_ms": time.median * 1e-6 if time else None,
        "iteration_ms_q1": time.q1 * 1e-6 if time else None,
        "iteration_ms_q3": time.q3 * 1e-6 if time else None,
    }
    for name in ("exposed", "hidden", "transfer", "wait"):
        share: Share | None = getattr(row, name)
        data[f"{name}_fraction_low"] = share.low if share else None
        data[f"{name}_fraction_high"] = share.high if share else None
    for name, bps in (
        ("measured_rate", row.rate_bps), ("mean_use", row.mean_use_bps), ("peak_use", row.peak_use_bps)
    ):  # fmt: skip
        data[f"{name}_Gbps"] = None if bps is None else bps * 1e-9
    return data | {
        "transport": row.transport,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "unknown": row.unknown,
    }
