"""Reports the largest micro-batches that fit into memory, as studies with `max-batch` found them."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.report.study_report import StudyReport
from wirecost.spec import Experiment, Scaling
from wirecost.study import Status


@dataclass(frozen=True)
class LargestBatch:
    """What a search for the largest micro-batch has found so far.

    Attributes:
        largest: largest micro-batch that trained. None if none did.
        smallest_oom: smallest micro-batch with which memory ran out. None if it never did.
        trials: number of micro-batches that were tried.
        memory_bytes: memory of a rank as the study states it. None is what the device has.
    """

    workload: str
    plan: str
    ranks: int
    largest: int | None
    smallest_oom: int | None
    trials: int
    memory_bytes: int | None

    @property
    def is_exact(self) -> bool:
        """Whether the next larger micro-batch doesn't fit."""
        return self.smallest_oom is not None and self.smallest_oom - (self.largest or 0) == 1


def largest_batches(report: StudyReport) -> list[LargestBatch]:
    """Returns a row for each workload, plan and number of ranks with `max-batch`."""
    groups: dict[tuple[str, str, int, int | None], dict[int, bool]] = {}
    for cell in report.cells:
        experiment = cell.result.experiment
        if not isinstance(experiment, Experiment) or experiment.scaling is not Scaling.MAX_BATCH:
            continue
        key = (cell.workload, cell.plan, experiment.ranks, experiment.memory)
        statuses = {run.outcome.status for run in cell.runs}
        if statuses & {Status.OOM, Status.DONE}:
            tried = groups.setdefault(key, {})
            # If memory ran out on one network or in one repeat, the batch doesn't fit reliably.
            tried[experiment.micro_batch] = tried.get(experiment.micro_batch, True) and Status.OOM not in statuses
    return [
        LargestBatch(
            workload,
            plan,
            ranks,
            max((batch for batch, fits in tried.items() if fits), default=None),
            min((batch for batch, fits in tried.items() if not fits), default=None),
            len(tried),
            memory,
        )
        for (workload, plan, ranks, memory), tried in groups.items()
    ]
