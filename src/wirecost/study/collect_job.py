"""Builds the breakdown of a command's run from what its ranks recorded."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirecost.breakdown import (
    Breakdown,
    Iteration,
    Profile,
    ProfiledComm,
    Source,
    UnknownProfile,
    unknown_parts,
)
from wirecost.diagnostics import Diagnostic, diagnostic, loses_data
from wirecost.jobs.steps import RankSteps, as_samples, read_steps, sharing_a_gpu
from wirecost.spec import JobExperiment
from wirecost.storage import write_file
from wirecost.study.collect import IncompleteSamplesError
from wirecost.study.conditions import busy, network_record, proven_transport, read_link, shared_cores


def collect_job(experiment: JobExperiment, directory: Path, cores: int) -> Breakdown:
    """Returns the breakdown of a command's run, and writes its iterations to `samples/`.

    The iterations are timed only: their parts are unknown, and the profile says which part communication has.

    Raises:
        IncompleteSamplesError: if no rank has a measured iteration.
    """
    recordings = read_steps(directory)
    samples = {r.rank: as_samples(r, experiment.warmup, experiment.iterations) for r in recordings}
    measured = {rank: [s for s in rows if not s["warmup"]] for rank, rows in samples.items()}
    measured = {rank: rows for rank, rows in measured.items() if rows}
    if not measured:
        raise IncompleteSamplesError("no rank has a measured iteration")
    for rank, rows in samples.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_file(directory / "samples" / f"rank-{rank}.jsonl", text)
    # A rank that was ended a little earlier has fewer iterations.
    count = min(map(len, measured.values()))
    iterations = tuple(
        Iteration(
            rank=rank,
            name=str(row["iteration"]),
            parts=unknown_parts(row["end_ns"] - row["start_ns"]),
            start_ns=row["start_ns"],
        )
        for rank, rows in sorted(measured.items())
        for row in rows[:count]
    )
    link = read_link(directory)
    world_size = max(experiment.ranks if len(recordings) > 1 else 1, *(r.world_size for r in recordings))
    transport, mismatch = _transport(experiment, directory, recordings, world_size)
    network, about_network = network_record(experiment, directory, link, transport)
    return Breakdown(
        source=Source.MEASURED,
        title=experiment.slug,
        world_size=world_size,
        iterations=iterations,
        network=network,
        profile=_profile(experiment, directory, recordings, world_size),
        details=_timers(directory),
        diagnostics=(
            *_diagnostics(experiment, cores, count, world_size, sharing_a_gpu(recordings)),
            *mismatch,
            *busy(directory),
            *about_network,
        ),
    )


def _transport(
    experiment: JobExperiment, directory: Path, recordings: Sequence[RankSteps], world_size: int
) -> tuple[str | None, list[Diagnostic]]:
    """Returns the transport that NCCL's log proves, or gloo's, which is TCP. None is unknown."""
    if world_size == 1:
        return None, []
    logs = [p for p in (directory / "logs").glob("nccl-*.log") if p.stat().st_size]
    if logs:
        return proven_transport(experiment, logs)
    backends = {r.backend for r in recordings}
    gloo = all(b is not None and "gloo" in b and "nccl" not in b for b in backends)
    return "tcp" if gloo else None, []


def _timers(directory: Path) -> dict[str, Any]:
    """Returns the medians of Megatron-Core's timers in seconds by timer and rank, over its timed iterations."""
    by_rank: dict[int, dict[str, list[float]]] = {}
    for path in (directory / "timers").glob("rank-*.jsonl"):
        times = by_rank.setdefault(int(path.stem.rpartition("-")[2]), {})
        for line in path.read_text().splitlines():
            for name, time_s in json.loads(line)["times_s"].items():
                times.setdefault(name, []).append(time_s)
    medians = {
        str(rank): {name: statistics.median(times_s) for name, times_s in sorted(times.items())}
        for rank, times in sorted(by_rank.items())
    }
    return {"megatron_timers_s": medians} if medians else {}


def _profile(
    experiment: JobExperiment, directory: Path, recordings: Sequence[RankSteps], world_size: int
) -> Profile | None:
    """Returns the profiled window of all ranks, or None if none was asked for."""
    from wirecost.trace import TraceError, read
    from wirecost.trace.comm_parts import comm_parts
    from wirecost.trace.compare_ranks import steady_iterations
    from wirecost.trace.diagnostic_counts import DiagnosticCounts
    from wirecost.trace.source import NoDeviceEvents
    from wirecost.trace.waits import find_waits

    asked = experiment.profile_iterations
    if not asked or experiment.job.iteration_regex is not None:
        return None
    unknown: list[UnknownProfile] = []
    paths: dict[int, Path] = {}
    named = _name_by_rank(directory / "traces", recordings)
    for recording in recordings:
        path = named[recording.name]
        if path.exists() and recording.profiler is None:
            paths[recording.rank] = path
        else:
            reason = recording.profiler or "the job ended before the window under the profiler did"
            unknown.append(UnknownProfile(rank=recording.rank, reason=reason))
    recorded = {r.rank for r in recordings}
    unknown += [
        UnknownProfile(rank=rank, reason="the rank recorded no iteration")
        for rank in range(world_size)
        if rank not in recorded
    ]
    iterations: list[Iteration] = []
    comm: list[ProfiledComm] = []
    if paths and not unknown:
        try:
            told = [f"{path.name}={rank}" for rank, path in paths.items()]
            traces = list(read(list(paths.values()), ranks=told, jobs=1).traces)
        except NoDeviceEvents:
            traces = []
            unknown.append(UnknownProfile(rank=min(paths), reason="a run on a CPU without communication"))
        except TraceError as error:
            traces = []
            unknown.append(UnknownProfile(rank=min(paths), reason=f"its trace can't be read: {error}"))
        for trace, steady in zip(traces, steady_iterations(traces), strict=True):
            reason = next((f"{d.code}: {d.message}" for d in trace.diagnostics if loses_data(d)), None)
            if world_size > 1 and not len(trace.calls):
                reason = reason or "no communication in the trace"
            whole = [i for i in trace.iterations if not i.window.cut]
            if len(whole) != asked:
                reason = reason or f"the trace holds {len(whole)} whole iterations of {asked}"
            if reason is not None:
                unknown.append(UnknownProfile(rank=trace.rank or 0, reason=reason))
                continue
            iterations += [
                Iteration(rank=trace.rank or 0, name=i.window.name, parts=i.parts, start_ns=i.window.start_ns)
                for i in (trace.iterations[n] for n in steady)
            ]
        if traces and not unknown:
            rows = comm_parts(traces, find_waits(traces, DiagnosticCounts()).matched)
            kept = {(i.rank, i.name) for i in iterations}
            comm = [
                ProfiledComm(
                    rank=row.rank or 0,
                    name=row.iteration,
                    transfer_ns=row.transfer_ns,
                    wait_ns=row.wait_ns,
                    bubble_ns=row.bubble_ns,
                    unknown_ns=row.unknown_ns,
                )
                for row in rows
                if (row.rank or 0, row.iteration) in kept
            ]
    return Profile(asked_iterations=asked, iterations=tuple(iterations), comm=tuple(comm), unknown=tuple(unknown))


def _name_by_rank(folder: Path, recordings: Sequence[RankSteps]) -> dict[str, Path]:
    """Names the traces by rank, as those of a model are, and returns the path of each recording's trace.

    Traces keep the names of their processes if two processes have the same rank.
    """
    found = {r.name: folder / f"{r.name}.json.gz" for r in recordings}
    if len({r.rank for r in recordings}) < len(recordings):
        return found
    for recording in recordings:
        path = folder / f"rank-{recording.rank}.json.gz"
        if found[recording.name].exists():
            found[recording.name].rename(path)
        found[recording.name] = path
    return found


def _diagnostics(
    experiment: JobExperiment, cores: int, count: int, world_size: int, sharing: Sequence[int]
) -> list[Diagnostic]:
    diagnostics = []
    if sharing:
        diagnostics.append(
            diagnostic(
                "shared_gpu",
                f"{len(sharing)} of {world_size} ranks share a GPU: they take turns on it, so no time is that of "
                "ranks with a GPU each",
            )
        )
    if count < experiment.iterations:
        diagnostics.append(
            diagnostic(
                "measured_short",
                f"measured {count} of {experiment.iterations} iterations: the job ended before",
            )
        )
    if experiment.network.emulate is not None and world_size > cores:
        diagnostics.append(shared_cores(world_size, cores))
    return diagnostics
