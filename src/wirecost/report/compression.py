"""Compares the bytes that gradient compression saves with its effect on the loss."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport
from wirecost.spec import GradientTraffic


@dataclass(frozen=True)
class Compression:
    """One of several runs whose plans differ only in their gradient traffic.

    `sent_bytes`: the bytes that a rank sends in an iteration, averaged over ranks, with each collective on a ring
    (docs/explanation/measurement.md); None if a size is unknown. `native_bytes`: the same for the run without
    compression; None if there is no such run. `losses`: the loss of the global batch for each iteration after
    warm-up.
    """

    cell: Cell
    sent_bytes: float | None
    native_bytes: float | None
    losses: tuple[float, ...]

    @property
    def first_loss(self) -> float | None:
        return self.losses[0] if self.losses else None

    @property
    def last_loss(self) -> float | None:
        return self.losses[-1] if self.losses else None

    @property
    def traffic(self) -> str:
        plan = self.cell.engine_plan
        assert plan is not None
        if plan.gradient_traffic is GradientTraffic.POWERSGD:
            return f"powersgd, rank {plan.powersgd_rank}"
        return str(plan.gradient_traffic)

    @property
    def saved(self) -> float | None:
        """Returns the fraction of the bytes that compression saves; None if unknown."""
        if self.sent_bytes is None or not self.native_bytes:
            return None
        return 1 - self.sent_bytes / self.native_bytes


def compressions(report: StudyReport) -> list[Compression]:
    """Returns the runs whose plans differ only in their gradient traffic; comparable runs are adjacent."""
    alike: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    rests: dict[int, str] = {}
    for cell in report.cells:
        plan = cell.engine_plan
        if plan is None:
            continue
        # Cells with the same plan share one plan object.
        rest = rests.get(id(plan)) or plan.model_dump_json(exclude={"name", "gradient_traffic", "powersgd_rank"})
        rests[id(plan)] = rest
        alike[cell.workload, cell.network, cell.scale.label, rest].append(cell)
    rows = []
    for cells in alike.values():
        if len({c.engine_plan.gradient_traffic for c in cells if c.engine_plan}) < 2:
            continue
        native = next((c.summary.sent_bytes for c in cells if _is_native(c) and c.summary), None)
        rows += [
            Compression(c, c.summary.sent_bytes, native, c.summary.losses) for c in cells if c.summary is not None
        ]
    return rows


def _is_native(cell: Cell) -> bool:
    return cell.engine_plan is not None and cell.engine_plan.gradient_traffic is GradientTraffic.NATIVE
