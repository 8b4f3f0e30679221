"""Compares predictions with measurements of a table's rows or of a study's experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.calibration.inputs.table import Setting
from wirecost.calibration.saved import read
from wirecost.errors import SpecError
from wirecost.prediction.study import predict_study, read_predictions
from wirecost.prediction.study_validation import StudyValidation, validate_study
from wirecost.prediction.table_validation import TableValidation, validate_table
from wirecost.spec import JobExperiment


@dataclass(frozen=True)
class Options:
    """For a table: `setting`, and a table to fit to first. For a study: its predictions (what `wirecost predict
    --study` wrote), or a calibration to predict it from."""

    setting: Setting = field(default_factory=Setting)
    calibrate_on: Path | None = None
    predictions: Path | None = None
    calibration: Path | None = None


def validate(measured: Path, options: Options | None = None) -> TableValidation | StudyValidation:
    """Returns predictions beside a table of measurements, or beside a study's results directory.

    Raises:
        SpecError: if it can't be read, or the options are not of its kind.
    """
    options = options or Options()
    of_study = options.predictions is not None or options.calibration is not None
    if measured.is_dir():
        if options.calibrate_on is not None:
            raise SpecError("--calibrate-on is for tables; a study takes --predictions or --calibration")
        return _validate_store(measured, options)
    if of_study:
        if not measured.exists():
            raise SpecError(
                f"{measured}: no such directory; --predictions and --calibration take a study's results"
            )
        raise SpecError(f"{measured}: --predictions and --calibration are for a study's results directory")
    return validate_table(measured, setting=options.setting, calibrate_on=options.calibrate_on)


def _validate_store(root: Path, options: Options) -> StudyValidation:
    from wirecost.study import Store

    store = Store(root)
    contents = store.contents()
    measured = [result.experiment for result in contents.results]
    if measured and all(isinstance(experiment, JobExperiment) for experiment in measured):
        raise SpecError(
            f"{root}: every workload is a command, whose model is unknown, so that only traces predict it: leave "
            "out --predictions, and run the job with --profile 3"
        )
    if (options.predictions is None) == (options.calibration is None):
        raise SpecError(
            f"{root}: nothing predicts this study: give --predictions DIR (`wirecost predict --study`) or "
            "--calibration DIR, or run it with --profile, so that traces predict it"
        )
    predictions: Mapping[str, Breakdown]
    if options.predictions is not None:
        predictions = read_predictions(options.predictions)
    else:
        assert options.calibration is not None
        predicted = predict_study(store.study(), read(options.calibration))
        predictions = {p.experiment.slug: p.prediction.breakdown for p in predicted if p.prediction}
    damaged = {d.name: d.reason for d in contents.damaged}
    return replace(validate_study(contents.results, predictions, damaged), unusable=tuple(contents.diagnostics()))
