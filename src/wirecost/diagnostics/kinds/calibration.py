"""Codes of calibrations."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.CALIBRATION, meaning, remedy)


KINDS = (
    _kind(
        "core_sharing_assumed",
        Severity.WARNING,
        "Ranks share processor cores, and the runs don't determine how computation scales with fewer threads. The "
        "serial part is a judgement.",
        "add runs kept to one core (taskset -c 0 wirecost study run ...)",
    ),
    _kind(
        "disturbed_run",
        Severity.WARNING,
        "Other programs used the processors during a run that the calibration reads. The run counts less.",
        "run the experiment again on a quiet machine",
    ),
    _kind(
        "no_benchmark",
        Severity.WARNING,
        "The input holds no benchmark. The network is the cluster preset's, or unknown.",
        "add the JSON of `wirecost bench`",
    ),
    _kind(
        "no_runs",
        Severity.WARNING,
        "The input holds no runs. Computation is the GPU preset's, and no stack is written.",
        "add runs of one rank",
    ),
    _kind(
        "overlap_not_determined",
        Severity.INFO,
        "All runs have one rank. The part of the communication that computation hides keeps its start value.",
        "add runs of several ranks",
    ),
)
