"""Predictions beside measurements: of a table's rows, or of a study's experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.api.view import ResultView, Rows
from wirecost.prediction.study_validation import StudyValidation
from wirecost.prediction.table_validation import TableValidation
from wirecost.whatif.validation import ReplayValidation

if TYPE_CHECKING:
    import altair

PathLike = str | os.PathLike[str]
Validation = TableValidation | StudyValidation | ReplayValidation


class ValidationView(ResultView):
    """Predictions beside measurements.

    Attributes:
        validation: of a table's rows, or of a study's experiments by a calibration or by their traces.
    """

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    @property
    def tables(self) -> tuple[str, ...]:
        if isinstance(self.validation, TableValidation):
            return ("rows", "groups")
        return ("cells",) if isinstance(self.validation, StudyValidation) else ("rows",)

    @property
    def mean_absolute_error(self) -> float | None:
        """Mean of |predicted / measured - 1| over all rows, or of |predicted - measured| for fractions. None if no
        row has a single number."""
        errors = [abs(row["error"]) for row in self.rows() if row["error"] is not None]
        return sum(errors) / len(errors) if errors else None

    def _rows(self, table: str) -> Rows:
        data = self.validation.as_json()
        return data[table]

    def chart(self) -> altair.Chart:
        """Returns predicted over measured values, with the diagonal."""
        import altair as alt

        seconds = not isinstance(self.validation, TableValidation)
        measured, predicted = ("measured_s", "predicted_s") if seconds else ("measured", "predicted")
        rows = [r for r in self.rows() if r[measured] and r[predicted]]
        most = max((max(r[measured], r[predicted]) for r in rows), default=1.0)
        least = min((min(r[measured], r[predicted]) for r in rows), default=0.1)
        scale = alt.Scale(type="log")
        points = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_point()
            .encode(x=alt.X(f"{measured}:Q", scale=scale), y=alt.Y(f"{predicted}:Q", scale=scale))
        )
        line: list[dict[str, Any]] = [{measured: v, predicted: v} for v in (least, most)]
        diagonal = (
            alt.Chart(alt.InlineData(values=line))
            .mark_line(strokeDash=[4, 4])
            .encode(x=alt.X(f"{measured}:Q", scale=scale), y=alt.Y(f"{predicted}:Q", scale=scale))
        )
        return points + diagonal  # type: ignore[return-value]

    def _headline(self) -> str:
        if isinstance(self.validation, ReplayValidation):
            return self.validation.text
        error = self.mean_absolute_error
        shown = "unknown" if error is None else f"{error:.1%}"
        return f"{len(self.rows())} rows, mean |error| {shown}"


def validate(
    measured: PathLike,
    *,
    calibrate_on: PathLike | None = None,
    cluster: str | Path | None = None,
    testbed: str | Path | None = None,
    predictions: PathLike | None = None,
    calibration: PathLike | None = None,
) -> ValidationView:
    """Predicts every row of a table of measurements, or every experiment of a study, and holds both together.

    Args:
        measured: a CSV of iteration times or communication fractions, or a study's results. Without `predictions`
            and `calibration`, each experiment of a study is predicted from the traces of another one.
        calibrate_on: a table to which the model is fitted first.
        cluster, testbed: where the rows of a table were measured, if they don't say it.
        predictions: for a study: what `wirecost predict --study` wrote.
        calibration: for a study: predict it from this calibration. If all of it are commands, their traces predict
            them, and the calibration tells of networks that the study's benchmarks didn't measure.

    Raises:
        WirecostError: if something can't be read, or an option isn't for this kind of measurements.
    """
    from wirecost.calibration.inputs.table import Setting
    from wirecost.prediction.validation import Options
    from wirecost.prediction.validation import validate as run
    from wirecost.spec import load_spec
    from wirecost.study import Store
    from wirecost.whatif.validation import has_traces, only_commands, validate_replays

    setting = Setting(
        load_spec("cluster", str(cluster)) if cluster is not None else None,
        load_spec("testbed", str(testbed)) if testbed is not None else None,
    )
    paths = [None if path is None else Path(path) for path in (calibrate_on, predictions, calibration)]
    if calibrate_on is None and predictions is None and Path(measured).is_dir():
        store = Store(Path(measured))
        if has_traces(store) and (calibration is None or only_commands(store)):
            return ValidationView(validate_replays(store.root, paths[-1]))
    return ValidationView(run(Path(measured), Options(setting, *paths)))
