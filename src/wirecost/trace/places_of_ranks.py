"""On which host each rank ran, and which pipeline stage it was, where traces tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wirecost.trace.rank import RankTrace

if TYPE_CHECKING:
    from wirecost.trace.matched_traces import MatchedTraces

# The file name of torch.profiler.tensorboard_trace_handler: HOST_PROCESS.TIME.pt.trace.json
# (torch/profiler/profiler.py).
_NAMED_BY_HOST = re.compile(r"(.+)_\d+\.\d+\.pt\.trace\.json(\.gz|\.zst|\.zstd)?")


def hosts(traces: Sequence[RankTrace]) -> dict[int, str]:
    """Returns the host of each rank by the number of its trace, as the trace or its file's name tells it; empty
    unless all ranks' are known."""
    found = {}
    for number, trace in enumerate(traces):
        if trace.host is not None:
            found[number] = trace.host
            continue
        match = _NAMED_BY_HOST.fullmatch(Path(trace.file).name)
        if match is not None:
            found[number] = match[1]
    return found if len(found) == len(traces) else {}


def stages(s: MatchedTraces) -> dict[int, int]:
    """Returns the pipeline stage of each rank by the number of its trace; empty without a pipeline.

    Ranks that exchange messages of a pipeline form one pipeline, and its stages are in order of rank.
    """
    number = {t.rank or 0: n for n, t in enumerate(s.traces)}
    root = {rank: rank for rank in number}

    def top(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    piped: set[int] = set()
    for m in s.matched:
        if m.bubble:
            piped.update(m.ranks)
            for rank in m.ranks[1:]:
                root[top(rank)] = top(m.ranks[0])
    members: dict[int, list[int]] = {}
    for rank in sorted(piped):
        members.setdefault(top(rank), []).append(rank)
    return {number[rank]: stage for listed in members.values() for stage, rank in enumerate(listed)}
