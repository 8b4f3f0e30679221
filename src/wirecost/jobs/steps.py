"""Reads what the ranks of a job recorded about their iterations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

MOST_FILES = 4096
MOST_BYTES = 64 << 20


class _Line(msgspec.Struct):
    """A line of `steps/*.jsonl`: a header, an iteration's end, a note on the profiler, a new start, or the end."""

    rank: int | None = None
    world_size: int | None = None
    launched_world_size: int | None = None
    backend: str | None = None
    device: str | None = None
    gpu: str | None = None
    pid: int | None = None
    host: str | None = None
    torch: str | None = None
    end: int | None = None
    t_ns: int | None = None
    profiler: str | None = None
    restart: bool | None = None
    ended: str | None = None
    reason: str | None = None


@dataclass
class RankSteps:
    """The recording of one process that took optimizer steps.

    Attributes:
        name: name of the file without its suffix. The trace has the same name.
        ends_ns: time of each iteration's end on CLOCK_MONOTONIC.
        profiler: why there is no trace, or None.
        ended: `done`, `exit` (the process ended first), `error`, or None while it records or if it was killed.
        gpu: UUID of the GPU, or None without one or if it isn't known.
    """

    name: str
    rank: int
    world_size: int
    launched_world_size: int
    backend: str | None
    device: str
    ends_ns: list[int] = field(default_factory=list)
    profiler: str | None = None
    ended: str | None = None
    reason: str | None = None
    gpu: str | None = None


def read_steps(directory: Path) -> list[RankSteps]:
    """Returns the recordings of a job's ranks in order of rank. Lines that can't be read are left out, because a
    process that is killed may leave one.
    """
    paths = sorted((directory / "steps").glob("*.jsonl"))[:MOST_FILES]
    recordings = [steps for path in paths if (steps := _read(path)) is not None]
    return sorted(recordings, key=lambda steps: (steps.rank, steps.name))


def _read(path: Path) -> RankSteps | None:
    steps: RankSteps | None = None
    decode = msgspec.json.Decoder(_Line).decode
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES)
    except OSError:
        return None
    for text in content.splitlines():
        try:
            line = decode(text)
        except msgspec.MsgspecError:
            continue
        if steps is None:
            if line.rank is None or line.world_size is None or not 0 <= line.rank < max(line.world_size, 1):
                continue
            steps = RankSteps(
                path.stem,
                line.rank,
                line.world_size,
                line.launched_world_size or 1,
                line.backend,
                line.device or "unknown",
                gpu=line.gpu,
            )
        elif line.t_ns is not None:
            steps.ends_ns.append(line.t_ns)
        elif line.restart:
            steps.ends_ns.clear()
        elif line.profiler is not None:
            steps.profiler = line.profiler
        elif line.ended is not None:
            steps.ended, steps.reason = line.ended, line.reason
    return steps


def sharing_a_gpu(recordings: Sequence[RankSteps]) -> list[int]:
    """Returns the ranks that have a GPU in common with another one. Several recordings of one rank, as of a
    process and its child, share nothing with another rank."""
    by_gpu: defaultdict[str, set[int]] = defaultdict(set)
    for recording in recordings:
        if recording.gpu is not None:
            by_gpu[recording.gpu].add(recording.rank)
    return sorted({rank for ranks in by_gpu.values() if len(ranks) > 1 for rank in ranks})


def as_samples(steps: RankSteps, warmup: int, iterations: int) -> list[dict[str, Any]]:
    """Returns a rank's iterations as rows of `samples/rank-R.jsonl`, without those of the profiled window.

    Iteration n lasts from the end of iteration n - 1 to its own. The first one has no known start and is left out.
    """
    first = max(warmup, 1)
    ends_ns = steps.ends_ns[: first + iterations]
    return [
        {"iteration": number, "warmup": number < first, "start_ns": start_ns, "end_ns": end_ns}
        for number, (start_ns, end_ns) in enumerate(pairwise(ends_ns), 1)
        if end_ns > start_ns
    ]
