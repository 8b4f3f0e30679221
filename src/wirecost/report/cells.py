"""The cells of a study's tables. Each holds one experiment with its measured and predicted numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wirecost.breakdown import Breakdown, MeanInterval, Share, Spread, share_interval, time_interval
from wirecost.prediction.matched import Matched
from wirecost.spec import AnyExperiment, JobExperiment, Plan, Scaling, plan_name, workload_name
from wirecost.study import Status
from wirecost.study.store import ResultSummary
from wirecost.study.summary import Summary, over_repeats

DISTURBANCES = frozenset(("busy_machine", "tcp_retransmits"))
"""Codes of diagnostics that something disturbed while an experiment ran."""
DISTURBED = "~"
"""Mark of the numbers of a disturbed experiment."""


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
    repeats: tuple[ResultSummary, ...] = ()
    """The repeats of the experiment in a study that has several. `result` then is the one over all of them."""
    over_repeats: bool = False
    """Whether the samples of statistics are repeats, not iterations."""

    @property
    def runs(self) -> tuple[ResultSummary, ...]:
        """Returns every run of the experiment."""
        return self.repeats or (self.result,)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Returns the codes of what disturbed the run, or one of its repeats."""
        codes = {d.code for run in self.runs if run.summary for d in run.summary.diagnostics}
        return tuple(sorted(codes & DISTURBANCES))

    @property
    def mark(self) -> str:
        """Returns what stands behind the numbers of a disturbed run in tables."""
        return DISTURBED if self.disturbed else ""

    @property
    def iteration_interval_ns(self) -> MeanInterval | None:
        """Returns the 95 % interval of the iteration time over repeats in ns; None without two of them."""
        return time_interval(self.summary.iteration_times_ns) if self.over_repeats and self.summary else None

    @property
    def fraction_interval(self) -> MeanInterval | None:
        """Returns the interval of the communication fraction: the 95 % interval over repeats, and that of a
        command as `Summary.exposed` has it. None if it is unknown, and for a single run of a model.
        """
        known = [share for run in self.runs if run.summary and (share := run.summary.exposed) is not None]
        if self.over_repeats:
            low, high = (share_interval(ends) for ends in ([s.low for s in known], [s.high for s in known]))
            return MeanInterval(low.low, high.high, low.n) if low and high else None
        timed_only = self.summary is not None and self.summary.comm_fraction is None
        return MeanInterval(known[0].low, known[0].high, known[0].n) if known and timed_only else None

    @property
    def engine_plan(self) -> Plan | None:
        """Returns the plan of a model that wirecost trained; None for a command."""
        experiment = self.result.experiment
        return None if isinstance(experiment, JobExperiment) else experiment.plan

    @property
    def summary(self) -> Summary | None:
        return self.result.summary

    @property
    def exposed(self) -> Share | None:
        """Returns the communication fraction, which is an interval for some commands; None if unknown."""
        return self.summary.exposed if self.summary else None

    @property
    def comm_fraction(self) -> Spread | None:
        """Returns the communication fraction of a model that wirecost trained; None if unknown."""
        return self.summary.comm_fraction if self.summary else None

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
        than asked for, `~` a disturbed one, `p` a prediction of a cell that wasn't measured.
        """
        fraction = self.exposed
        if fraction is not None:
            return f"{fraction.fraction_text()}{'!' if self.other_transport else ''}{self.mark}"
        predicted = self.predicted_fraction
        if predicted is not None:
            return f"{predicted.median:.2f}p"
        return "OOM" if self.result.outcome.status is Status.OOM else str(self.result.outcome.status)


def to_cells(
    results: Iterable[ResultSummary], predictions: Matched, *, over_repeats: bool = False
) -> tuple[Cell, ...]:
    """Returns one cell for each experiment. If a study has hosts of several sizes, a network's name includes the
    size: with two ranks behind a link it is another network than with one.

    Args:
        over_repeats: whether results of one experiment are its repeats, over which statistics are made.
    """
    results = list(results)
    repeats: dict[str, tuple[ResultSummary, ...]] = {}
    if over_repeats:
        for result in results:
            name = result.experiment.common_slug
            repeats[name] = (*repeats.get(name, ()), result)
        results = [_over_repeats(each) for each in repeats.values()]
    sizes = {r.experiment.ranks_per_host for r in results if not r.experiment.network.inside}
    return tuple(
        Cell(
            workload_name(e),
            network_name(e, several=len(sizes) > 1),
            plan_name(e),
            _scale(e),
            result,
            predictions.of(e.common_slug),
            repeats.get(e.common_slug, ()),
            over_repeats,
        )
        for result in results
        for e in (result.experiment,)
    )


def _over_repeats(results: Sequence[ResultSummary]) -> ResultSummary:
    """Returns the result over all repeats: that of the finished ones, or the first if none has finished."""
    done = [result for result in results if result.summary is not None]
    if not done:
        return results[0]
    return replace(done[0], summary=over_repeats([result.summary for result in done if result.summary]))


def _scale(experiment: AnyExperiment) -> Scale:
    if isinstance(experiment, JobExperiment):
        return Scale(None, experiment.ranks, None)
    return Scale(experiment.scaling, experiment.ranks, experiment.global_batch, experiment.accumulation)


def network_name(experiment: AnyExperiment, *, several: bool) -> str:
    """Returns the network's name, with the number of ranks on a host if the study has several."""
    name = experiment.network.name
    return name if experiment.network.inside or not several else f"{name}, {experiment.ranks_per_host} per host"
