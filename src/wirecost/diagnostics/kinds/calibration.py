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
        "input_left_out",
        Severity.INFO,
        "A run, trace or breakdown of the input can't be used. The calibration rests on the others.",
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
    _kind(
        "rows_not_expressed",
        Severity.WARNING,
        "Rows of a table can't be expressed in the cost model. The calibration rests on the other rows.",
        "`wirecost validate TABLE` lists every row with the reason",
    ),
)
