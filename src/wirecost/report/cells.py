"""The cells of a study's tables. Each holds one experiment with its measured and predicted numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wirecost.breakdown import Breakdown, Spread
from wirecost.prediction.matched import Matched
from wirecost.spec import AnyExperiment, JobExperiment, Plan, Scaling, plan_name, workload_name
from wirecost.study import Status
from wirecost.study.store import ResultSummary
from wirecost.study.summary import Summary


@dataclass(frozen=True)
class Scale:
    """A column of the reference study's table: <ranks, global batch> under a scaling rule. The same batch with
    another micro-batch size is another column. The batch and the rule of a command are unknown (None).
    """

    scaling: Scaling | None
    ranks: int
    global_batch: int | None
    accumulation: int = 1

    def __lt__(self, other: Scale) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[bool, str, int, int, int]:
        """The place among other scales: those of commands come last."""
        unknown = self.scaling is None
        return unknown, str(self.scaling or ""), self.ranks, self.global_batch or 0, self.accumulation

    def __str__(self) -> str:
        if self.global_batch is None:
            return f"{self.ranks} rank{'s' * (self.ranks != 1)}"
        accumulated = f" in {self.accumulation} micro-batches" if self.accumulation > 1 else ""
        return f"<{self.ranks}, {self.global_batch}>{accumulated}"

    @property
    def label(self) -> str:
        return str(self) if self.scaling is None else f"{self.scaling} {self}"


@dataclass(frozen=True)
class Cell:
    """One experiment in a table."""

    workload: str
    network: str
    plan: str
    scale: Scale
    result: ResultSummary
    predicted: Breakdown | None = None
    """The predicted numbers; None without a prediction."""

    @property
    def engine_plan(self) -> Plan | None:
        """Returns the plan of a model that wirecost trained; None for a command."""
        experiment = self.result.experiment
        return None if isinstance(experiment, JobExperiment) else experiment.plan

    @property
    def summary(self) -> Summary | None:
        return self.result.summary

    @property
    def comm_fraction(self) -> Spread | None:
        return self.summary.shown_comm_fraction if self.summary else None

    @property
    def predicted_fraction(self) -> Spread | None:
        """Returns the predicted fraction if nothing was measured, else None; running out of memory counts as
        measured.
        """
        if self.predicted is None or self.summary or self.result.outcome.status is Status.OOM:
            return None
        return self.predicted.comm_fraction()

    @property
    def other_transport(self) -> bool:
        """Returns whether the run used another transport than it asked for. Its numbers then don't describe its
        network.
        """
        return bool(self.summary) and any(d.code == "transport_not_as_asked" for d in self.summary.diagnostics)

    @property
    def text(self) -> str:
        """Returns the fraction as text, or the status of a run without one. `!` marks a run over another transport
        than asked for, `p` a prediction of a cell that wasn't measured.
        """
        fraction = self.comm_fraction
        if fraction is not None:
            return f"{fraction.median:.2f}{'!' if self.other_transport else ''}"
        predicted = self.predicted_fraction
        if predicted is not None:
            return f"{predicted.median:.2f}p"
        return "OOM" if self.result.outcome.status is Status.OOM else str(self.result.outcome.status)


def to_cells(results: Iterable[ResultSummary], predictions: Matched) -> tuple[Cell, ...]:
    """Returns one cell for each result. If a study has hosts of several sizes, a network's name includes the size:
    with two ranks behind a link it is another network than with one.
    """
    results = list(results)
    sizes = {r.experiment.ranks_per_host for r in results if not r.experiment.network.inside}
    return tuple(
        Cell(
            workload_name(e),
            network_name(e, several=len(sizes) > 1),
            plan_name(e),
            _scale(e),
            result,
            predictions.of(e.slug),
        )
        for result in results
        for e in (result.experiment,)
    )


def _scale(experiment: AnyExperiment) -> Scale:
    if isinstance(experiment, JobExperiment):
        return Scale(None, experiment.ranks, None)
    return Scale(experiment.scaling, experiment.ranks, experiment.global_batch, experiment.accumulation)


def network_name(experiment: AnyExperiment, *, several: bool) -> str:
    """Returns the network's name, with the number of ranks on a host if the study has several."""
    name = experiment.network.name
    return name if experiment.network.inside or not several else f"{name}, {experiment.ranks_per_host} per host"
