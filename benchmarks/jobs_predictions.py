"""Predictions of `jobs_on_gpus.py` from traces, and these beside what was measured.

DIR/predictions.csv    a line for each traced run and each other network
DIR/pairs.csv          the same with the measured iteration
"""

from __future__ import annotations

import csv
import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from jobs_list import Run
from jobs_runs import Row, result_of

from wirecost.errors import WirecostError
from wirecost.study import Status
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.question import Question
from wirecost.whatif.study_cells import read_cell, recorded_on, step_time_ns, traces_of


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A line of predictions.csv. Times are in ms; `said_ms` is empty where only an interval is known."""

    job: str
    kind: str
    traces_over: str
    network: str
    said_ms: str = ""
    low_ms: str = ""
    high_ms: str = ""
    replay_error: str = ""
    bound_by: str = ""
    why_interval: str = ""
    refused: str = ""

    @property
    def text(self) -> str:
        head = f"{self.job:<12} {self.traces_over:<13} -> {self.network:<18}"
        if self.refused:
            return f"{head} not predicted: {self.refused}"
        said = f"{float(self.said_ms):.1f} ms" if self.said_ms else ""
        interval = f"{float(self.low_ms):.1f} to {float(self.high_ms):.1f} ms"
        return f"{head} {said or interval:>22}   replay {float(self.replay_error):+.2%}, bound by {self.bound_by}"


def read_predictions(path: Path) -> list[Prediction]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [Prediction(**line) for line in csv.DictReader(file)]


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Prediction))
        writer.writerows(dataclasses.astuple(p) for p in predictions)


def predict(out: Path, run: Run, networks: list[str], calibration: Path) -> list[Prediction] | None:
    """Returns what the traces of a run say of the other networks; None if there are no traces."""
    result = result_of(out, run)
    if result is None or result.outcome.status is not Status.DONE:
        return None
    ranks = result.experiment.ranks
    if not traces_of(result.directory, ranks):
        return None
    head = (run.job.name, run.job.kind, run.network)
    others = [network for network in networks if network != run.network]
    try:
        job = Job(
            read_cell(result.directory, ranks),
            step_time_ns=step_time_ns(result),
            calibration=calibration,
            recorded_on=recorded_on(result.experiment),
        )
        error = job.error
    except WirecostError as problem:
        return [Prediction(*head, network, refused=one_line(problem)) for network in others]
    predictions = []
    for network in others:
        try:
            answer = answer_to(job, Question(network=network))
        except WirecostError as problem:
            predictions.append(Prediction(*head, network, refused=one_line(problem)))
            continue
        known = "" if answer.iteration_ms is None else f"{answer.iteration_ms:.2f}"
        predictions.append(
            Prediction(
                *head, network, known, f"{answer.low_ms:.2f}", f"{answer.high_ms:.2f}", f"{error:.4f}",
                answer.bound_by, answer.why_interval or "",
            )
        )  # fmt: skip
    return predictions


def one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:300]


def predict_all(
    out: Path, runs: list[Run], networks: list[str], calibration: Path, deadline: float, say: Callable[[str], None]
) -> list[Prediction]:
    """Predicts every traced run that isn't predicted yet, writes predictions.csv after each, and returns all."""
    path = out / "predictions.csv"
    everything = read_predictions(path)
    done = {(p.job, p.traces_over) for p in everything}
    for run in runs:
        key = (run.job.name, run.network)
        if key in done or time.monotonic() > deadline:
            say(f"{run.job.name:<12} {run.network:<13}: {'predicted already' if key in done else 'no time left'}")
            continue
        begun = time.monotonic()
        predictions = predict(out, run, networks, calibration)
        if predictions is None:
            say(f"{run.job.name:<12} {run.network:<13}: no traces")
            continue
        everything += predictions
        write_predictions(path, everything)
        for prediction in predictions:
            say(prediction.text)
        say(f"{'':12} {time.monotonic() - begun:.1f} s")
    return everything


@dataclasses.dataclass(frozen=True)
class Pair:
    """A prediction beside the measured iteration.

    Attributes:
        error: of a number, predicted / measured - 1. Of an interval, how far the measurement lies outside, as a
            share of it; 0 inside.
        width: of the interval, as a share of the measurement.
    """

    prediction: Prediction
    measured_ms: float
    error: float
    width: float

    @property
    def text(self) -> str:
        p = self.prediction
        said = f"{float(p.said_ms):.1f} ms" if p.said_ms else f"{float(p.low_ms):.1f} to {float(p.high_ms):.1f} ms"
        verdict = f"{self.error:+.1%}" if p.said_ms or self.error else "inside"
        verdict += "" if p.said_ms or not self.error else " outside"
        return (
            f"{p.job:<12} {p.traces_over:<13} -> {p.network:<18} {said:>22}   measured {self.measured_ms:8.1f} ms"
            f"   {verdict}"
        )


def pairs_of(predictions: list[Prediction], rows: dict[tuple[str, str], Row]) -> list[Pair]:
    pairs = []
    for p in predictions:
        row = rows.get((p.job, p.network))
        if p.refused or row is None or not row.reported_ms:
            continue
        measured, low, high = float(row.reported_ms), float(p.low_ms), float(p.high_ms)
        if p.said_ms:
            error = float(p.said_ms) / measured - 1
        else:
            error = (min(0.0, measured - low) + max(0.0, measured - high)) / measured
        pairs.append(Pair(p, measured, error, (high - low) / measured))
    return pairs


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [field.name for field in dataclasses.fields(Prediction) if field.name != "refused"]
        writer.writerow([*names, "measured_ms", "error", "width"])
        for pair in pairs:
            values = [getattr(pair.prediction, name) for name in names]
            writer.writerow([*values, f"{pair.measured_ms:.3f}", f"{pair.error:.4f}", f"{pair.width:.3f}"])


def by_kind(pairs: list[Pair]) -> list[str]:
    """Returns a line for each kind of job: errors of numbers, and how many intervals hold the measurement."""
    lines = [f"{'kind':<12} numbers  mean |error|  largest   intervals  inside  farthest  mean width"]
    for kind in [*dict.fromkeys(pair.prediction.kind for pair in pairs), "all"]:
        mine = [pair for pair in pairs if kind in (pair.prediction.kind, "all")]
        numbers = [abs(pair.error) for pair in mine if pair.prediction.said_ms]
        bounded = [pair for pair in mine if not pair.prediction.said_ms]
        line = f"{kind:<12} {len(numbers):7}"
        line += (
            f"  {sum(numbers) / len(numbers):12.1%}  {max(numbers):7.1%}" if numbers else f"  {'-':>12}  {'-':>7}"
        )
        line += f"   {len(bounded):9}"
        if bounded:
            inside = sum(pair.error == 0 for pair in bounded)
            width = sum(pair.width for pair in bounded) / len(bounded)
            line += f"  {inside:6}  {max(abs(pair.error) for pair in bounded):8.1%}  {width:10.0%}"
        lines.append(line)
    return lines
