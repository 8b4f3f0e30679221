"""What compressed gradients save on the wire, beside what the loss comes to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport
from wirecost.spec import GradientTraffic


@dataclass(frozen=True)
class Compression:
    """A run, among runs whose plans differ in their gradient traffic only.

    `sent_bytes`: what a rank sends in an iteration, the mean over ranks, each collective on a ring
    (docs/explanation/measurement.md); None where a size isn't known. `native_bytes`: the same of the run that
    compresses nothing; None where there is none. `losses`: of the global batch, by iteration after warm-up.
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
        plan = self.cell.result.experiment.plan
        if plan.gradient_traffic is GradientTraffic.POWERSGD:
            return f"powersgd, rank {plan.powersgd_rank}"
        return str(plan.gradient_traffic)

    @property
    def saved(self) -> float | None:
        """The fraction of the bytes that compression saves."""
        if self.sent_bytes is None or not self.native_bytes:
            return None
        return 1 - self.sent_bytes / self.native_bytes


def compressions(report: StudyReport) -> list[Compression]:
    """Runs of plans that differ in their gradient traffic, those that belong together one after another."""
    alike: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    rests: dict[int, str] = {}
    for cell in report.cells:
        plan = cell.result.experiment.plan
        # Cells share the plan's object where they share the plan.
        rest = rests.get(id(plan)) or plan.model_dump_json(exclude={"name", "gradient_traffic", "powersgd_rank"})
        rests[id(plan)] = rest
        alike[cell.workload, cell.network, cell.scale.label, rest].append(cell)
    rows = []
    for cells in alike.values():
        if len({c.result.experiment.plan.gradient_traffic for c in cells}) < 2:
            continue
        native = next((c.summary.sent_bytes for c in cells if _is_native(c) and c.summary), None)
        rows += [
            Compression(c, c.summary.sent_bytes, native, c.summary.losses) for c in cells if c.summary is not None
        ]
    return rows


def _is_native(cell: Cell) -> bool:
    return cell.result.experiment.plan.gradient_traffic is GradientTraffic.NATIVE
