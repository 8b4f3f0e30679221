"""`wirecost calibrate`: fit the model to what is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    measured: Annotated[
        list[Path], typer.Argument(help="CSV tables of measured iterations, benchmarks or fractions.")
    ],
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free", metavar="PROPERTY", help="'stack NAME PROPERTY', 'gpu ...', 'link ...' (repeatable)."
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="Folds of the cross-validation; 0 for none.")] = 5,
    group: Annotated[
        str | None, typer.Option("--group", metavar="COLUMN", help="Hold out whole values of this column instead.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Write the values as YAML.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Fit properties of GPUs, links and software stacks, and report the error on rows held out of the fit.

    Tables have the columns of the reference tables (n_layers, hidden, gpu, mbs, iter_s, ...), or those of
    communication fractions, or of collective benchmarks (size_bytes, time_us, ...). Use the result with
    `wirecost predict --calibration FILE`.
    """
    import json

    from wirecost.cli.output import check_format, console, percent, table
    from wirecost.model.calibrate_tables import calibrate_tables
    from wirecost.model.store import save_calibration

    check_format(format)
    result = calibrate_tables(measured, free=free, folds=folds, group=group)
    if save:
        save_calibration(result, save, [str(path) for path in measured])
    if format == "json":
        typer.echo(json.dumps(result.as_json()))
        return
    out = console()
    changed = sorted(result.values, key=lambda n: -abs(result.values[n] / max(result.start[n], 1e-30) - 1))
    body = [[n, f"{result.start[n]:.4g}", f"{result.values[n]:.4g}"] for n in changed]
    out.print(table(f"Fitted to {result.rows} rows", ["property", "before", "after"], body))
    lines = [
        ["before the fit", percent(result.before), "-"],
        ["on the rows fitted", percent(result.mape), percent(result.bias, sign=True)],
    ]
    if result.held_out is not None:
        lines.append(
            [
                f"on rows held out ({result.how})",
                percent(result.held_out),
                percent(result.held_out_bias, sign=True),
            ]
        )
    out.print(table("Mean absolute error", ["", "error", "bias"], lines))
    if result.spread is not None:
        out.print(f"  nine in ten held-out rows lie within {percent(result.spread)} of their prediction")
    if save:
        typer.echo(f"wrote {save}", err=True)
