"""`wirecost validate`: the model against a table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wirecost.cli.output import FORMAT, check_format, print_csv


def validate(
    measured: Annotated[
        Path,
        typer.Argument(
            help="CSV of measured iterations or communication fractions, or a study's results directory."
        ),
    ],
    calibrate_on: Annotated[
        Path | None, typer.Option("--calibrate-on", metavar="FILE", help="Fit on this table first.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Where a table's rows were measured, if they don't say: preset or YAML."),
    ] = None,
    testbed: Annotated[
        str | None,
        typer.Option("--testbed", help="Or on whose clusters and software: preset (`wirecost presets testbeds`)."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="COLUMN", help="Errors by this column too (repeatable).")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", metavar="DIR", help="For a study: what `wirecost predict --study` wrote."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="DIR",
            help="Or predict it now from `wirecost calibrate --out`; of commands: the networks that their traces "
            "are asked about.",
        ),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Print every row.")] = False,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Compare predictions with measurements.

    Every row of a table, or every experiment of a study, is predicted. Without --predictions and --calibration,
    each experiment of a study is predicted from the traces of another one, also those of `wirecost run --out`.

    Rows that the model can't express are listed with the reason. Errors are predicted / measured - 1, for tables
    of communication fractions predicted - measured. Of a study: each experiment measured and predicted, and
    whether its strategies come in the right order."""
    import json

    from wirecost.api.validation import validate as run
    from wirecost.cli.show import show_replay_validation, show_study_validation
    from wirecost.diagnostics import lines_of
    from wirecost.errors import SpecError
    from wirecost.prediction.study_validation import StudyValidation
    from wirecost.whatif.validation import ReplayValidation

    format = check_format(format)
    if measured.is_dir() and (by or rows or cluster or testbed):
        raise SpecError("--by, --rows, --cluster and --testbed are for tables; a study takes --predictions")
    result = run(
        measured,
        calibrate_on=calibrate_on,
        cluster=cluster,
        testbed=testbed,
        predictions=predictions,
        calibration=calibration,
    ).validation
    if isinstance(result, StudyValidation):
        for diagnostic in result.unusable:
            for line in lines_of(diagnostic):
                typer.echo(line, err=True)
    if format == "csv":
        data = result.as_json()
        print_csv([_flat(row) for row in data.get("rows", data.get("cells", []))])
    elif format == "json":
        typer.echo(json.dumps(result.as_json(), allow_nan=False))
    elif isinstance(result, StudyValidation):
        show_study_validation(result, format)
    elif isinstance(result, ReplayValidation):
        show_replay_validation(result, format)
    else:
        _print(result, by, rows, format)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row without nested values."""
    return {key: value for key, value in row.items() if not isinstance(value, dict | list)}


def _print(result: Any, by: list[str] | None, every_row: bool, format: str) -> None:
    from wirecost.cli.output import console, percent, plain, table

    out = console(format)
    seconds = result.unit == "s"
    title = "Predicted against measured time" if seconds else "Predicted against measured comm fraction"
    head = ["source", "rows", "mean |error|", "bias", "worst", "worst row", "in 90 % interval"]
    if not seconds:
        head[-1] = "OOM right"
    body = []
    for group in result.groups():
        last = (
            percent(group["interval_coverage"], 0)
            if seconds
            else f"{group['oom_right']}/{group['oom_cells']}, {group['oom_false']} false"
        )
        scale = percent if seconds else plain
        body.append(
            [
                group["source"],
                group["rows"],
                scale(group["mape"]),
                scale(group["bias"], sign=True),
                scale(group["max_ape"]),
                group["worst"] or "-",
                last,
            ]
        )
    out.print(table(title, head, body))
    for column in by or []:
        lines = [
            [
                g["source"],
                g["rows"],
                (percent if seconds else plain)(g["mape"]),
                (percent if seconds else plain)(g["bias"], sign=True),
            ]
            for g in result.by_parameter(column)
        ]
        out.print(table(f"By {column}", [column, "rows", "mean |error|", "bias"], lines))
    if every_row:
        lines = [
            [
                r.id,
                plain(r.measured),
                "OOM" if r.predicted is None else plain(r.predicted),
                (percent if seconds else plain)(r.error, sign=True),
                r.stack,
            ]
            for r in result.rows
        ]
        out.print(table("Rows", ["row", "measured", "predicted", "error", "stack"], lines))
    if assumed := _assumed(result):
        out.print(assumed, soft_wrap=True)
    if result.skipped:
        reasons: dict[str, list[str]] = {}
        for skipped_row in result.skipped:
            reasons.setdefault(skipped_row["reason"], []).append(skipped_row["id"])
        lines = [
            [reason, len(ids), ", ".join(ids[:3]) + (" ..." if len(ids) > 3 else "")]
            for reason, ids in reasons.items()
        ]
        out.print(table("Rows that can't be expressed", ["reason", "rows", "which"], lines))


def _assumed(result: Any) -> str:
    """Returns what was assumed where rows leave something open, with the number of rows, as one line of text."""
    from collections import Counter

    from wirecost.cli.output import safe

    counted: Counter[tuple[str, str]] = Counter()
    for row in result.rows:
        counted.update((key, str(value)) for key, value in row.assumed.items())
    if not counted:
        return ""
    by_key: dict[str, list[str]] = {}
    for (key, value), rows in counted.most_common():
        by_key.setdefault(key, []).append(f"{value} ({rows})")
    texts = [
        f"{safe(key)} {', '.join(map(safe, values[:3]))}{', ...' if len(values) > 3 else ''}"
        for key, values in by_key.items()
    ]
    return f"Assumed where rows don't say, with the number of rows: {'; '.join(texts)}."
