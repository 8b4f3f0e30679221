"""Decides whether what the ranks recorded is the measurement of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wirecost.jobs.steps import RankSteps, as_samples
from wirecost.spec.job import JobExperiment


def why_unusable(recordings: Sequence[RankSteps], experiment: JobExperiment) -> str | None:
    """Returns the reason why a job that has ended has no result, or None if it has one."""
    if not recordings or not any(r.ends_ns for r in recordings):
        return _nothing_recorded(recordings, experiment)
    for r in recordings:
        if r.ended == "error":
            return f"rank {r.rank}'s iterations can't be recorded: {r.reason}"
    rank, processes = Counter(r.rank for r in recordings).most_common(1)[0]
    launched = max(experiment.ranks, *(r.launched_world_size for r in recordings))
    world_size = recordings[0].world_size
    if processes > 1:
        return (
            f"{processes} processes are rank {rank} of {world_size}: they trained apart, so nothing here "
            "measures a network; the job must take its rendezvous from MASTER_ADDR and MASTER_PORT, or start "
            f"on one host (--hosts 1x{launched})"
        )
    if world_size == 1 and launched > 1:
        return (
            f"the job trained as 1 rank of 1 although {launched} were started: it must call "
            "torch.distributed.init_process_group, or be started alone (--hosts 1)"
        )
    if not any(len(_measured(r, experiment)) for r in recordings):
        done = max(len(r.ends_ns) for r in recordings)
        return (
            f"the job ended after {done} iterations, and none after a warm-up of {experiment.warmup} is left; "
            "let it run longer, or lower the warm-up"
        )
    return None


def _measured(recording: RankSteps, experiment: JobExperiment) -> list[object]:
    rows = as_samples(recording, experiment.warmup, experiment.iterations)
    return [row for row in rows if not row["warmup"]]


def _nothing_recorded(recordings: Sequence[RankSteps], experiment: JobExperiment) -> str:
    if experiment.job.iteration_regex is not None:
        return f"no line of the job's output matches {experiment.job.iteration_regex!r}"
    failed = next((r.reason for r in recordings if r.reason), None)
    if failed is not None:
        return f"the job's iterations can't be recorded: {failed}"
    return (
        "no step of a PyTorch optimizer was seen before the job ended; a job must not go on in the background "
        "after its command has ended; for one that doesn't use PyTorch, or starts Python with -I, -E or -S, give "
        "a regular expression of the lines that end an iteration (--iteration-regex)"
    )
