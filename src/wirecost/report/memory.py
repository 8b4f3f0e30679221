"""How much memory a rank took: the largest over ranks, beside where memory ran out."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.breakdown import MemoryKind, OutOfMemory
from wirecost.report.cells import Cell, Scale
from wirecost.report.study_report import StudyReport
from wirecost.study import Status
from wirecost.units import format_size_bytes


@dataclass(frozen=True)
class Peak:
    """The most memory that a rank of a run held at once; None is unknown. `since` is `PeakMemory.since`, None
    where memory ran out. `out` is there where it did."""

    kind: MemoryKind | None
    since: str | None
    peak_bytes: int | None
    reserved_bytes: int | None
    out: OutOfMemory | None = None


def peak_of(cell: Cell) -> Peak | None:
    """None for a run that neither finished nor ran out of memory."""
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
    """One workload under one plan at one scale: the largest over its networks, on which memory doesn't depend."""

    workload: str
    plan: str
    scale: Scale
    peak: Peak

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
        asked = format_size_bytes(p.out.asked_bytes) if p.out.asked_bytes is not None else "unknown"
        return f"OOM at {known}, asked for {asked}"


def peak_rows(report: StudyReport) -> list[PeakRow]:
    """No rows where no run tells anything."""
    found = []
    for (plan, workload, scale), cells in report.by_scale.items():
        peaks = [p for c in cells if (p := peak_of(c)) is not None]
        # Where one network's run fitted and another's didn't, that it didn't is what must be seen.
        peaks.sort(key=lambda p: (p.out is not None, p.peak_bytes or -1))
        if peaks:
            found.append(PeakRow(workload, plan, scale, peaks[-1]))
    known = any(row.peak.peak_bytes is not None or row.peak.out is not None for row in found)
    return found if known else []
