"""Predictions of a study's experiments from the traces of another one of them, beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.errors import WirecostError
from wirecost.report.cells import Cell
from wirecost.spec import AnyExperiment
from wirecost.study import Store
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.network import NetworkModel
from wirecost.whatif.question import Question
from wirecost.whatif.study_cells import network_of, question_between, read_cell, recorded_on, traces_of

MOST_BASES = 4
"""Experiments whose traces are replayed for a report; a replay takes seconds."""


@dataclass(frozen=True)
class Predicted:
    """What the traces of `base` say of `cell`, in ms: `predicted_ms`, or None where only `low_ms` to `high_ms` is
    known. All are None where `unknown` says why nothing is."""

    base: Cell
    cell: Cell
    question: str
    measured_ms: float
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    unknown: str | None = None

    @property
    def error(self) -> float | None:
        """The prediction against the measurement, as a share; None for an interval."""
        return None if self.predicted_ms is None else self.predicted_ms / self.measured_ms - 1

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds the measurement; None for a single number."""
        if self.predicted_ms is not None or self.low_ms is None or self.high_ms is None:
            return None
        return self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def text(self) -> str:
        """The prediction in words: `212.4`, `198.0 to 240.1`, or `unknown`."""
        if self.predicted_ms is not None:
            return f"{self.predicted_ms:,.1f}"
        if self.low_ms is None or self.high_ms is None:
            return "unknown"
        return f"{self.low_ms:,.1f} to {self.high_ms:,.1f}"

    @property
    def verdict(self) -> str:
        """The error in words: `-1.7 %`, or whether an interval holds the measurement."""
        if self.error is not None:
            return f"{100 * self.error:+.1f} %"
        if self.inside is None:
            return "unknown"
        return "inside" if self.inside else "outside"


def predictions_of(cells: Sequence[Cell]) -> list[Predicted]:
    """Returns a row for each cell that can be asked about from the traces of another one.

    Of the cells that can be asked about from each other, the first with traces is asked: that on the fastest
    network.
    """
    measured = [cell for cell in cells if cell.summary and cell.summary.iteration_times_ns]
    rows: list[Predicted] = []
    answered: set[int] = set()
    bases = 0
    for base in measured:
        if id(base) in answered or not traces_of(_run(base).directory, _run(base).experiment.ranks):
            continue
        asked = [(c, q) for c in measured if (q := _question(base, c)) is not None and id(c) not in answered]
        if not asked:
            continue
        answered.update(id(cell) for cell in (base, *(c for c, _ in asked)))
        bases += 1
        if bases > MOST_BASES:
            break
        rows += _answers(base, asked)
    return rows


def _run(cell: Cell):
    """Returns the run of a cell whose traces are read: its first repeat."""
    return cell.runs[0]


def _question(base: Cell, cell: Cell) -> Question | None:
    return None if base is cell else question_between(_run(base).experiment, _run(cell).experiment)


def _median_ms(cell: Cell) -> float:
    assert cell.summary is not None
    return statistics.median(cell.summary.iteration_times_ns) * 1e-6


def _answers(base: Cell, asked: Sequence[tuple[Cell, Question]]) -> list[Predicted]:
    run = _run(base)
    store = Store(run.directory.parent.parent)
    experiments: dict[str, AnyExperiment] = {c.network: _run(c).experiment for c, _ in asked}
    networks: dict[str, NetworkModel] = {}
    for name, experiment in experiments.items():
        model = network_of(store, experiment)
        if model is not None:
            networks[name] = model
    try:
        job = Job(
            read_cell(run.directory, run.experiment.ranks),
            step_time_ns=_median_ms(base) * 1e6,
            networks=networks,
            recorded_on=recorded_on(run.experiment),
        )
    except WirecostError as error:
        return [Predicted(base, c, q.text, _median_ms(c), unknown=str(error)) for c, q in asked]
    rows = []
    for cell, question in asked:
        try:
            if question.network is not None and question.network not in networks:
                raise WirecostError(f"network '{question.network}' wasn't benchmarked and has no nominal rate")
            answer = answer_to(job, question)
        except WirecostError as error:
            rows.append(Predicted(base, cell, question.text, _median_ms(cell), unknown=str(error)))
            continue
        rows.append(
            Predicted(
                base, cell, answer.question, _median_ms(cell), answer.iteration_ms, answer.low_ms, answer.high_ms
            )
        )
    return rows
