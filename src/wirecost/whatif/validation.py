"""Predictions from traces beside measurements: each experiment of a study, asked about from the traces of another.

No model of the workload is needed, so that this works for commands as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wirecost.errors import WirecostError
from wirecost.spec import JobExperiment, workload_name
from wirecost.study import Result, Store
from wirecost.whatif.answer import answers
from wirecost.whatif.job import Job
from wirecost.whatif.named_network import calibrated_networks
from wirecost.whatif.results import Answer
from wirecost.whatif.study_cells import (
    measured_answers,
    others,
    read_cell,
    recorded_on,
    step_time_ns,
    study_networks,
    traces_of,
    unknown_networks,
)


@dataclass(frozen=True)
class ReplayError:
    """One experiment, predicted from the traces of another one.

    Attributes:
        traces_of: name of the experiment whose traces were replayed.
        workload: its workload.
        network: its network.
        ranks: its number of ranks.
        question: what the predicted experiment has that differs.
        measured_s: median of its measured iteration in seconds.
        predicted_s: the predicted iteration in seconds. None where only an interval is known.
        low_s: lower end of the prediction in seconds. Equal to `predicted_s` where a number is known.
        high_s: upper end.
        error: predicted / measured - 1. None for an interval.
        outside: distance of the measurement from the interval, as a share of the measurement. Negative: the
            measured iteration is shorter than the interval's lower end. 0: it lies inside. None for a number.
    """

    traces_of: str
    workload: str
    network: str
    ranks: int
    question: str
    measured_s: float
    predicted_s: float | None
    low_s: float
    high_s: float
    error: float | None
    outside: float | None


@dataclass(frozen=True)
class ReplayValidation:
    """Every pair of experiments that differ in what can be asked, and what was left out with the reason."""

    rows: tuple[ReplayError, ...]
    left_out: tuple[tuple[str, str], ...]

    def summary(self) -> dict[str, Any]:
        """Returns the errors of the numbers, how many intervals hold the measurement, and how wide they are."""
        errors = [abs(row.error) for row in self.rows if row.error is not None]
        bounded = [row for row in self.rows if row.error is None]
        outside = [abs(row.outside or 0.0) for row in bounded]
        widths = [(row.high_s - row.low_s) / row.measured_s for row in bounded]
        return {
            "rows": len(self.rows),
            "numbers": len(errors),
            "mape": sum(errors) / len(errors) if errors else None,
            "max_ape": max(errors) if errors else None,
            "intervals": len(bounded),
            "inside": sum(1 for far in outside if far == 0.0),
            "max_outside": max(outside) if outside else None,
            "mean_width": sum(widths) / len(widths) if widths else None,
        }

    @property
    def text(self) -> str:
        """The summary in words."""
        found = self.summary()
        said: list[str] = []
        if found["numbers"]:
            said.append(
                f"{found['numbers']} numbers, mean |error| {found['mape']:.1%}, largest {found['max_ape']:.1%}"
            )
        if found["intervals"]:
            farthest = f", the farthest by {found['max_outside']:.1%}" if found["max_outside"] else ""
            said.append(
                f"{found['inside']} of {found['intervals']} intervals hold the measured iteration{farthest}; "
                f"they are {found['mean_width']:.0%} of it wide on average"
            )
        return "; ".join(said)

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        return {
            "format_version": 1,
            "unit": "s",
            "summary": self.summary(),
            "rows": [asdict(row) for row in self.rows],
            "left_out": [{"cell": cell, "reason": reason} for cell, reason in self.left_out],
        }


def has_traces(store: Store) -> bool:
    """Returns whether an experiment of a study kept the traces of all its ranks."""
    return any(traces_of(r.directory, r.experiment.ranks) for r in store.contents().results)


def only_commands(store: Store) -> bool:
    """Returns whether every experiment of a study is a command, so that only traces predict it."""
    results = store.contents().results
    return bool(results) and all(isinstance(r.experiment, JobExperiment) for r in results)


def validate_replays(folder: Path, calibration: Path | None = None) -> ReplayValidation:
    """Predicts every experiment of a study from the traces of each other one, and holds it beside its measurement.

    Args:
        calibration: what is known of networks that the study's benchmarks didn't measure.

    Raises:
        WirecostError: if no experiment has traces from which another measured one can be predicted, or the
            calibration can't be read.
    """
    if calibration is not None:
        calibrated_networks(calibration, 1)  # before it is an experiment's fault
    rows: list[ReplayError] = []
    left_out: list[tuple[str, str]] = []
    for base in Store(folder).contents().results:
        name = base.experiment.slug
        if base.experiment.repeat != 1:
            continue
        if not traces_of(base.directory, base.experiment.ranks):
            left_out.append((name, "its traces are not kept, so that nothing is predicted from them"))
            continue
        try:
            rows += _from(folder, base, left_out, calibration)
        except WirecostError as error:
            reason = str(error).removeprefix(f"{base.directory}: ")  # the same for other experiments
            left_out.append((name, f"its traces can't be replayed: {reason}"))
    if not rows:
        reasons = "; ".join(dict.fromkeys(reason for _, reason in left_out))
        raise WirecostError(
            f"{folder}: nothing to validate: it takes two measured experiments that differ in the network or in "
            f"the size of buckets, one of them with traces (--profile){f': {reasons}' if reasons else ''}"
        )
    return ReplayValidation(tuple(rows), tuple(left_out))


def _from(
    folder: Path, base: Result, left_out: list[tuple[str, str]], calibration: Path | None
) -> Iterable[ReplayError]:
    measured_ms = measured_answers(folder, base)
    asked = [question for question in others(folder, base, ()) if question.text in measured_ms]
    if not asked:
        reason = "no other measured experiment differs from it in the network or the size of buckets alone"
        left_out.append((base.experiment.slug, reason))
        return
    known = study_networks(folder, base.experiment, calibration)
    if unknown := unknown_networks(asked, known):
        asked = [question for question in asked if question.network not in unknown]
        which = ", ".join(unknown) if asked else "the study's other networks"
        left_out.append(
            (base.experiment.slug, f"no benchmark and no nominal rate tells what {which} would do to it")
        )
        if not asked:
            return
    job = Job(
        read_cell(base.directory, base.experiment.ranks),
        step_time_ns=step_time_ns(base),
        calibration=calibration,
        networks=known,
        recorded_on=recorded_on(base.experiment),
    )
    for question in asked:
        try:
            answer = answers(job, [question]).answers[0]
        except WirecostError as error:
            left_out.append((base.experiment.slug, f"{question.text}: {error}"))
        else:
            yield _row(base, answer, measured_ms[question.text])


def _row(base: Result, answer: Answer, measured_ms: float) -> ReplayError:
    known = answer.iteration_ms is not None
    low, high = (answer.iteration_ms or answer.low_ms), (answer.iteration_ms or answer.high_ms)
    outside = min(0.0, measured_ms - low) + max(0.0, measured_ms - high)
    return ReplayError(
        traces_of=base.experiment.slug,
        workload=workload_name(base.experiment),
        network=base.experiment.network.name,
        ranks=base.experiment.ranks,
        question=answer.question,
        measured_s=measured_ms * 1e-3,
        predicted_s=None if answer.iteration_ms is None else answer.iteration_ms * 1e-3,
        low_s=low * 1e-3,
        high_s=high * 1e-3,
        error=low / measured_ms - 1 if known else None,
        outside=None if known else outside / measured_ms,
    )
