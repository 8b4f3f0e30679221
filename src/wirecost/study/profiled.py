"""Reads the profiled window of an experiment: its ranks' traces, split into five parts of each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wirecost.breakdown import Iteration, Profile, UnknownProfile
from wirecost.diagnostics import loses_data
from wirecost.spec import Experiment

if TYPE_CHECKING:
    from wirecost.trace.rank import RankTrace

NO_DEVICE = "no device time line in the trace"
"""Reason for an unknown profile on a CPU. There the profiler records operators and collectives on different
threads, but not which of them shared a core.
"""


def read_profile(experiment: Experiment, directory: Path) -> Profile | None:
    """Returns the profile of an experiment; None if nothing was profiled. A rank is unknown, with the reason, if
    its trace lacks a part of an iteration.
    """
    if not experiment.profile_iterations:
        return None
    iterations: list[Iteration] = []
    unknown = []
    for rank in range(experiment.ranks):
        iterations_or_reason = _rank(directory / "traces" / f"rank-{rank}.json.gz", rank, experiment)
        if isinstance(iterations_or_reason, str):
            unknown.append(UnknownProfile(rank=rank, reason=iterations_or_reason))
        else:
            iterations += iterations_or_reason
    return Profile(
        asked_iterations=experiment.profile_iterations, iterations=tuple(iterations), unknown=tuple(unknown)
    )


def _rank(path: Path, rank: int, experiment: Experiment) -> list[Iteration] | str:
    """Returns the rank's iterations, or the reason why they are unknown."""
    from wirecost.trace import TraceError, read
    from wirecost.trace.source import NoDeviceEvents

    if not path.exists():
        return f"the rank left no trace: see logs/rank-{rank}.log"
    try:
        # A single file is read in this process: worker processes would only add their start-up time.
        (trace,) = read(path, ranks=[f"{path.name}={rank}"], jobs=1).traces
    except NoDeviceEvents:
        return NO_DEVICE
    except TraceError as error:
        return f"its trace can't be read: {error}"
    return unusable(trace, experiment.ranks, experiment.profile_iterations) or [
        Iteration(rank=rank, name=i.window.name, parts=i.parts, start_ns=i.window.start_ns)
        for i in trace.iterations
    ]


def unusable(trace: RankTrace, ranks: int, requested: int) -> str | None:
    """Returns the reason why a trace gives no correct breakdown; None if it does.

    Args:
        ranks: the number of ranks of the experiment.
        requested: the number of iterations that the trace should hold.
    """
    if trace.device != "gpu" or trace.parts is None:
        return NO_DEVICE
    lost = next((d for d in trace.diagnostics if loses_data(d) or d.code == "bare_gpu_step"), None)
    if lost is not None:
        return f"{lost.count} x {lost.code}: {lost.message}"
    if ranks > 1 and not len(trace.calls):
        return "no communication in the trace"
    complete = [i for i in trace.iterations if not i.window.cut and i.window.source in ("gpu_step", "cpu_step")]
    if len(complete) != requested or len(trace.iterations) != requested:
        return f"the trace holds {len(complete)} complete iterations of {requested}"
    return None
