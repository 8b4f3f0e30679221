"""Builds a breakdown from the raw samples of all ranks: matches collectives over ranks, separates wait and
transfer.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from wirecost.breakdown import (
    Breakdown,
    Collective,
    Iteration,
    Parts,
    PeakMemory,
    Phase,
    Source,
)
from wirecost.collectives.traffic import ring_bytes_sent, ring_transfer_s
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.emulation.probe import LinkMeasurement
from wirecost.spec import Device, Experiment
from wirecost.spec.graphs import may_replay
from wirecost.study.conditions import busy, network_record, proven_transport, read_link, shared_cores
from wirecost.study.launches import launch_bound
from wirecost.study.profiled import read_profile


class IncompleteSamplesError(ValueError):
    """Raised when ranks that succeeded left fewer samples than they should have."""


def collect(experiment: Experiment, directory: Path, cores: int) -> Breakdown:
    """Returns the breakdown of a finished experiment without warm-up.

    Raises:
        IncompleteSamplesError: if a rank lacks iterations.
    """
    by_rank = [_read_samples(directory / "samples" / f"rank-{r}.jsonl") for r in range(experiment.ranks)]
    expected = experiment.warmup + experiment.iterations
    if experiment.min_time or may_replay(experiment):
        expected = max(expected, *map(len, by_rank), 0)  # the ranks agreed on additional iterations
    for rank, samples in enumerate(by_rank):
        if len(samples) != expected:
            raise IncompleteSamplesError(f"rank {rank} left {len(samples)} of {expected} iterations")
    measured = [[s for s in samples if not s["warmup"]] for samples in by_rank]
    link = read_link(directory)
    iterations = tuple(
        Iteration(
            rank=rank,
            name=str(sample["iteration"]),
            parts=Parts(**sample["parts"]),
            phases={Phase(k): v for k, v in sample["phases"].items()},
            start_ns=sample["start_ns"],
            loss=sample["loss"],
            expert_load=sample.get("expert_load"),
        )
        for rank, samples in enumerate(measured)
        for sample in samples
    )
    collectives = _collectives(measured, link)
    transport, mismatch = _transport(experiment, directory)
    network, about_network = network_record(experiment, directory, link, transport)
    return Breakdown(
        source=Source.MEASURED,
        title=experiment.slug,
        world_size=experiment.ranks,
        iterations=iterations,
        collectives=tuple(collectives),
        network=network,
        profile=read_profile(experiment, directory),
        peak_memory=tuple(_peak_memory(experiment, directory)),
        tokens_per_iteration=experiment.tokens_per_iteration,
        details={"cuda_graphs": True} if any(s.get("replayed") for s in measured[0]) else {},
        diagnostics=(
            *_diagnostics(experiment, cores, collectives, link),
            *mismatch,
            *busy(directory),
            *about_network,
            *launch_bound(measured),
            *_short(experiment, measured[0]),
        ),
    )


def _short(experiment: Experiment, measured: Sequence[dict[str, Any]]) -> list[Diagnostic]:
    """Returns a diagnostic if the iterations took less than `min_time`, which its limit on iterations and the
    experiment's timeout can cause.
    """
    spent_s = sum(s["end_ns"] - s["start_ns"] for s in measured) * 1e-9
    if spent_s >= experiment.min_time:
        return []
    return [
        diagnostic(
            "measured_short",
            f"measured for {spent_s:.3g} s of min_time's {experiment.min_time:.3g}, {len(measured)} "
            "iterations: more were too many, or would have come near the timeout",
        )
    ]


def _read_samples(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _peak_memory(experiment: Experiment, directory: Path) -> list[PeakMemory]:
    """Returns the peak memory of the ranks that recorded it. A rank records none if its kernel
    doesn't report it.
    """
    paths = [directory / "memory" / f"rank-{rank}.json" for rank in range(experiment.ranks)]
    return [PeakMemory.model_validate_json(path.read_bytes()) for path in paths if path.exists()]


def _collectives(measured: list[list[dict[str, Any]]], link: LinkMeasurement | None) -> list[Collective]:
    """Returns the collectives with wait and transfer. Calls are matched by order: the n-th collective of an
    iteration is the same call on every rank of its group.

    All ranks read one clock, because the hosts are emulated on one machine. Transfer runs from the last rank's
    start to a rank's own end; a rank's time before that is wait (docs/explanation/measurement.md).
    """
    calls_by_operation: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    for samples in zip(*measured, strict=True):
        for calls in _matched([s["communications"] for s in samples]):
            last_start = max(call["start_ns"] for _, call in calls)
            for rank, call in calls:
                calls_by_operation[rank, call["op"], call["group"]].append(
                    {
                        "size": len(call["ranks"]),
                        "start": call["start_ns"],
                        "bytes": call["size_bytes"],
                        "duration": call["end_ns"] - call["start_ns"],
                        "wait": min(last_start, call["end_ns"]) - call["start_ns"],
                    }
                )
    # Without a cap no rate can be expected: it depends on the number of connections that share the processors.
    rate = link.rate_bps if link and link.nominal_rate_bps else None
    collectives = []
    for (rank, op, group), calls in calls_by_operation.items():
        total = sum(c["bytes"] for c in calls)
        duration = sum(c["duration"] for c in calls)
        wait = sum(c["wait"] for c in calls)
        ranks = calls[0]["size"]
        transfer = duration - wait
        # Concurrent calls (the buckets of DDP) share the link, so their times don't add up.
        ordered = sorted((c["start"], c["start"] + c["duration"]) for c in calls)
        apart = all(end <= start for (_, end), (start, _) in pairwise(ordered))
        collectives.append(
            Collective(
                rank=rank,
                op=op,
                group=group,
                group_size=ranks,
                count=len(calls),
                bytes=total,
                duration_ns=duration,
                wait_ns=wait,
                transfer_ns=transfer,
                transfer_median_ns=round(statistics.median(c["duration"] - c["wait"] for c in calls)),
                busbw_Bps=ring_bytes_sent(op, total, ranks) / (transfer * 1e-9) if transfer and apart else None,
                expected_ns=round(ring_transfer_s(op, total, ranks, rate) * 1e9) if rate else None,
            )
        )
    return collectives


def _matched(by_rank: list[list[dict[str, Any]]]) -> list[list[tuple[int, dict[str, Any]]]]:
    """Groups one iteration's calls of all ranks by the collective that they belong to.

    Raises:
        IncompleteSamplesError: if a rank of a group lacks a call that the other ranks have.
    """
    lanes: dict[tuple[str, str, tuple[int, ...]], dict[int, list[dict[str, Any]]]] = {}
    for rank, calls in enumerate(by_rank):
        for call in calls:
            ranks = tuple(call["ranks"])
            op = "send_recv" if call["op"] in ("send", "recv") else call["op"]
            lanes.setdefault((op, call["group"], ranks), {r: [] for r in ranks})[rank].append(call)
    matched = []
    for (op, group, _), members in lanes.items():
        if len({len(calls) for calls in members.values()}) > 1:
            counts = ", ".join(f"rank {rank} {len(calls)}" for rank, calls in members.items())
            raise IncompleteSamplesError(f"calls of {op} in {group} differ in number: {counts}")
        matched += [list(zip(members, calls, strict=True)) for calls in zip(*members.values(), strict=True)]
    return matched


def _transport(experiment: Experiment, directory: Path) -> tuple[str | None, list[Diagnostic]]:
    """Returns the transport that NCCL's log proves, with diagnostics; gloo has only one transport."""
    if experiment.ranks == 1:
        return None, []
    if experiment.device is Device.CPU:
        return "tcp", []
    return proven_transport(experiment, (directory / "logs").glob("nccl-*.log"))


def _diagnostics(
    experiment: Experiment, cores: int, collectives: list[Collective], link: LinkMeasurement | None
) -> list[Diagnostic]:
    diagnostics = []
    if experiment.ranks > 1 and not collectives:
        diagnostics.append(
            diagnostic(
                "ranks_trained_apart",
                f"{experiment.ranks} ranks and no communication seen: they trained apart, "
                "so no number here means anything",
            )
        )
    if experiment.network.emulate is not None and experiment.ranks > cores:
        diagnostics.append(shared_cores(experiment.ranks, cores))
    smallest = min((c.bytes / c.count for c in collectives if c.bytes), default=None)
    if link and link.unshaped_bytes and smallest is not None and smallest < 10 * link.unshaped_bytes:
        diagnostics.append(
            diagnostic(
                "short_messages",
                f"collectives of {smallest / 2**10:.0f} KiB partly fit into the shaper's "
                f"{link.unshaped_bytes >> 10} KiB bucket and look faster than the link",
            )
        )
    return diagnostics
