"""Codes of results of collective benchmarks that are read from files."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.BENCHMARK_TABLES, meaning, remedy)


KINDS = (
    _kind(
        "bandwidth_recomputed",
        Severity.INFO,
        "The printed bus bandwidth is not the algorithm bandwidth times the collective's factor. Bandwidths are "
        "computed from size and time.",
    ),
    _kind(
        "corrupt_results",
        Severity.ERROR,
        "The benchmark itself found wrong elements in its results. Nothing is fitted to or drawn of them, and the "
        "command ends with exit code 1.",
        "find the faulty GPU, link or library before trusting any number of this machine",
    ),
    _kind(
        "cpu_times",
        Severity.INFO,
        "The times are the CPU's, of the launch (nccl-tests' option -C). Times are computed from size and "
        "algorithm bandwidth.",
    ),
    _kind(
        "rows_left_out",
        Severity.WARNING,
        "Rows are torn by other output or contradict themselves. They are left out.",
        "write each benchmark's output to a file of its own",
    ),
    _kind(
        "split_groups",
        Severity.INFO,
        "Several groups of ranks ran at once (NCCL_TESTS_SPLIT). The times are those of one group beside the "
        "others.",
    ),
    _kind(
        "table_left_out",
        Severity.WARNING,
        "A table of the file can't be used. The other tables are.",
    ),
    _kind(
        "times_in_ms",
        Severity.INFO,
        "The times are in milliseconds, as nccl-tests 1.x prints them. They are converted.",
    ),
)
