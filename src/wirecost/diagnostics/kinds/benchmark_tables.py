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
        "The benchmark itself found wrong elements in its results. They are neither fitted nor drawn, and the "
        "command ends with exit code 1.",
        "find the faulty GPU, link or library before trusting any number of this machine",
    ),
    _kind(
        "cpu_times",
        Severity.INFO,
        "The printed times are the CPU's launch times (nccl-tests' option -C). Times are computed from size and "
        "algorithm bandwidth.",
    ),
    _kind(
        "rows_left_out",
        Severity.WARNING,
        "Rows are interrupted by other output, or their values contradict each other. They are left out.",
        "write each benchmark's output to a file of its own",
    ),
    _kind(
        "split_groups",
        Severity.INFO,
        "Several groups of ranks ran at once (NCCL_TESTS_SPLIT). The times are those of one group while the "
        "others ran.",
    ),
    _kind(
        "table_left_out",
        Severity.WARNING,
        "A table of the file can't be used. The other tables are used.",
    ),
    _kind(
        "times_in_ms",
        Severity.INFO,
        "The times are in milliseconds, as nccl-tests 1.x prints them. They are converted.",
    ),
)
