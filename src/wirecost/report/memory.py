"""Reports the peak memory of a rank (the largest over ranks) and the runs that exhausted memory."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.breakdown import MemoryKind, OutOfMemory
from wirecost.report.cells import Cell, Scale
from wirecost.report.study_report import StudyReport
from wirecost.study import Status
from wirecost.units import format_size_bytes


@dataclass(frozen=True)
class Peak:
    """The peak memory of a rank of a run; None if unknown. `since` is `PeakMemory.since`, None if memory was
    exhausted. `out` is set only in that case.
    """

    kind: MemoryKind | None
    since: str | None
    peak_bytes: int | None
    reserved_bytes: int | None
    out: OutOfMemory | None = None


def peak_of(cell: Cell) -> Peak | None:
    """Returns the peak of a cell's run; None if the run neither finished nor exhausted memory."""
    outcome = cell.result.outcome
    if outcome.status is Status.OOM:
        out = outcome.memory or OutOfMemory()
        return Peak(out.kind, None, out.peak_bytes, None, out)
    if cell.summary is None:
        return None
    largest = cell.summary.peak
    if largest is None:
        return Peak(None, None, None, None)
    return Peak(largest.kind, largest.since, largest.peak_bytes, largest.reserved_bytes)


@dataclass(frozen=True)
class PeakRow:
    """The peak of one workload under one plan at one scale: the largest over networks, because memory doesn't
    depend on them.
    """

    workload: str
    plan: str
    scale: Scale
    peak: Peak
    mark: str = ""
    """What stands behind the numbers of a disturbed run."""

    @property
    def what(self) -> str:
        if self.peak.kind is None:
            return ""
        since = " since the process started" if self.peak.since == "process_start" else ""
        return f"{self.peak.kind.words}{since}"

    @property
    def size(self) -> str:
        p = self.peak
        known = format_size_bytes(p.peak_bytes) if p.peak_bytes is not None else "unknown"
        if p.out is None:
            return known
        requested = format_size_bytes(p.out.asked_bytes) if p.out.asked_bytes is not None else "unknown"
        return f"OOM at {known}, asked for {requested}"


def peak_rows(report: StudyReport) -> list[PeakRow]:
    """Returns the rows of the memory table; empty if no run has a known peak."""
    rows = []
    for (plan, workload, scale), cells in report.by_scale.items():
        peaks = [(p, c.mark) for c in cells if (p := peak_of(c)) is not None]
        # If memory sufficed on one network and not on another, the row shows the failure.
        peaks.sort(key=lambda each: (each[0].out is not None, each[0].peak_bytes or -1))
        if peaks:
            rows.append(PeakRow(workload, plan, scale, *peaks[-1]))
    known = any(row.peak.peak_bytes is not None or row.peak.out is not None for row in rows)
    return rows if known else []
