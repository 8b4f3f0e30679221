"""What compressed gradients save on the wire, beside what the loss comes to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from wirecost.breakdown import Breakdown
from wirecost.collectives.traffic import ring_bytes_sent
from wirecost.report.cells import Cell
from wirecost.report.study_report import StudyReport
from wirecost.spec import GradientTraffic


@dataclass(frozen=True)
class Compression:
    """A run, among runs whose plans differ in their gradient traffic only.

    `sent_bytes`: what a rank sends in an iteration, the mean over ranks, each collective on a ring
    (docs/measurement.md); None where a size isn't known. `native_bytes`: the same of the run that compresses
    nothing; None where there is none. `losses`: of the global batch, by iteration after warm-up.
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
    for cell in report.cells:
        plan = cell.result.experiment.plan
        rest = plan.model_dump_json(exclude={"name", "gradient_traffic", "powersgd_rank"})
        alike[cell.workload, cell.network, cell.scale.label, rest].append(cell)
    found = []
    for cells in alike.values():
        if len({c.result.experiment.plan.gradient_traffic for c in cells}) < 2:
            continue
        native = next((sent_bytes(c.breakdown) for c in cells if _is_native(c) and c.breakdown), None)
        found += [
            Compression(c, sent_bytes(c.breakdown), native, losses(c.breakdown)) for c in cells if c.breakdown
        ]
    return found


def sent_bytes(breakdown: Breakdown) -> float | None:
    """What a rank sends in an iteration, the mean over ranks; None where a collective's size isn't known."""
    total = 0.0
    for c in breakdown.collectives:
        if c.bytes is None or c.group_size is None:
            return None
        total += ring_bytes_sent(c.op, c.bytes, c.group_size)
    return total / len(breakdown.iterations) if breakdown.iterations else None


def losses(breakdown: Breakdown) -> tuple[float, ...]:
    """The global batch's loss by iteration: the mean over the ranks that know one."""
    by_iteration: dict[str, list[float]] = defaultdict(list)
    for iteration in breakdown.iterations:
        if iteration.loss is not None:
            by_iteration[iteration.name].append(iteration.loss)
    return tuple(fmean(values) for values in by_iteration.values())


def _is_native(cell: Cell) -> bool:
    return cell.result.experiment.plan.gradient_traffic is GradientTraffic.NATIVE
