"""`wirecost calibrate`: fit the cost model to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.cli.output import FORMAT, check_format, print_csv
from wirecost.text import printable

if TYPE_CHECKING:
    from wirecost.calibration.fit import Fit
    from wirecost.calibration.result import Calibration
    from wirecost.calibration.solver import Fitted


def calibrate(
    measured: Annotated[
        list[Path],
        typer.Argument(
            help="A study's results, an experiment's directory, `bench --format json`, traces, a breakdown, or "
            "CSV tables."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write the calibration there, with cluster and stack YAML."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the calibration as one YAML file.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Save a fit that is no better than the presets on rows left out.")
    ] = False,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="From results stores take only runs of so many ranks.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="What isn't measured (nodes, NICs, links, GPU): preset or YAML."),
    ] = None,
    testbed: Annotated[
        str | None, typer.Option("--testbed", help="CSV: where the rows were measured: preset or YAML.")
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Stack that runs start from: preset or YAML file.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU of the runs, if they don't say.")] = None,
    measure_host: Annotated[
        bool,
        typer.Option(
            "--measure-host",
            help="Also measure here, on one GPU, what layers and communication cost the host.",
        ),
    ] = False,
    workload: Annotated[
        str | None, typer.Option("--workload", help="What a trace trained; what --measure-host trains.")
    ] = None,
    plan: Annotated[str | None, typer.Option("--plan", "-p", help="How a trace's ranks trained it.")] = None,
    micro_batch: Annotated[int | None, typer.Option("--micro-batch", help="Of a trace.")] = None,
    global_batch: Annotated[int | None, typer.Option("--global-batch", "-B", help="Of a trace.")] = None,
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free", metavar="PROPERTY", help="CSV: 'stack NAME PROPERTY', 'gpu ...', 'link ...' (repeatable)."
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="CSV: parts that are left out in turn; 0 for none.")] = 5,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="COLUMN", help="CSV: leave out whole values of this column instead."),
    ] = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Fit the cost model to measurements.

    Properties of devices, links and software stacks are fitted, and the error on rows that the fit did not see is
    reported.

    From one-rank runs and a benchmark: `wirecost calibrate wirecost-runs/one-rank bench.json --out mine`, then
    `wirecost predict ... --calibration mine`, or a whole study with `wirecost predict --study STUDY.yaml
    --calibration mine --out predictions`.

    `--measure-host` runs the engine as one rank of two, of which the other doesn't exist, on one GPU of the
    machine of the runs. Plans that the host holds up are then predicted with its times.

    CSV tables have the columns of the reference tables (n_layers, hidden, gpu, mbs, iter_s, ...), or those of
    communication fractions, or of collective benchmarks (size_bytes, time_us, ...).

    Exit code 1: nothing was saved, since a fit is no better than the presets on rows left out.
    """
    import json

    from wirecost.calibration.calibrate import Options
    from wirecost.calibration.calibrate import calibrate as fit
    from wirecost.calibration.fit import HoldOut
    from wirecost.calibration.host import host_values
    from wirecost.calibration.inputs.gather import gather
    from wirecost.calibration.inputs.traces import TraceOptions
    from wirecost.errors import SpecError
    from wirecost.spec import load_spec

    format = check_format(format)
    if save and any(save.exists() and path.exists() and save.samefile(path) for path in measured):
        raise SpecError(f"--save {save}: is one of the measurements; name another file to write")
    base = load_spec("cluster", cluster) if cluster else None
    of_traces = TraceOptions(
        load_spec("workload", workload) if workload else None,
        load_spec("plan", plan) if plan else None,
        micro_batch,
        global_batch,
        base.gpus_per_node if base else None,
    )
    options = Options(
        cluster=base,
        testbed=load_spec("testbed", testbed) if testbed else None,
        stack=load_spec("stack", stack) if stack else None,
        gpu=gpu,
        properties=tuple(free or ()),
        hold_out=HoldOut(folds),
        group=group,
    )
    inputs = gather(measured, of_traces, ranks=ranks)
    requests = []
    if measure_host:
        from wirecost.cli._host_times import checked_requests

        requests = checked_requests(inputs, of_traces.workload)
    calibration = fit(inputs, options)
    if requests:
        from wirecost.cli._host_times import with_measured

        calibration = with_measured(calibration, requests, inputs.runs)
    written, refused = _save(calibration, out, save, force=force)
    if format == "json":
        document: dict[str, Any] = calibration.as_json() | {"wrote": [str(path) for path in written]}
        for precision, host in calibration.hosts.items():
            document["hosts"][str(precision)]["stack"] = host_values(host, calibration.stacks[precision])
        typer.echo(json.dumps(document))
    elif format == "csv":
        rows = _property_rows(calibration)
        if calibration.hosts:
            from wirecost.cli._host_times import host_rows

            rows += host_rows(calibration)
        print_csv(rows)
    else:
        _print(calibration, format)
    for line in refused:
        typer.echo(printable(f"not saved: {line}"), err=True)
    for path in written:
        typer.echo(f"wrote {path}", err=True)
    if refused:
        raise typer.Exit(1)


def _save(
    calibration: Calibration, out: Path | None, save: Path | None, *, force: bool
) -> tuple[list[Path], list[str]]:
    """Returns the files written, and the reasons if nothing was written."""
    from wirecost.calibration.saved import save as save_file
    from wirecost.calibration.saved import write

    if out is None and save is None:
        return [], []
    if calibration.empty:
        return [], ["the measurements determine no property"]
    worse = [] if force else calibration.worse_than_presets()
    if worse:
        return [], [f"{line}; --force saves it all the same" for line in worse]
    written = write(calibration, out) if out else []
    return written + (save_file(calibration, save) if save else []), []


def _property_rows(calibration: Calibration) -> list[dict[str, Any]]:
    """Returns a row for each property of each fit."""
    return [
        {
            "fit": fit.name,
            "property": p.name,
            "before": p.start,
            "after": p.value if p.fitted else None,
            "unit": p.unit,
            "within": p.within,
            "measurements": p.measurements,
            "not_determined": p.reason,
        }
        for fit in calibration.fits
        for p in fit.properties
    ]


def _print(calibration: Calibration, format: str) -> None:
    from wirecost.diagnostics import lines_of

    for fit in calibration.fits:
        _print_properties(fit, format)
        _print_errors(fit, format)
    for precision, host in calibration.hosts.items():
        from wirecost.cli._host_times import print_host

        print_host(host, calibration.stacks.get(precision), format)
    for diagnostic in calibration.diagnostics:
        for line in lines_of(diagnostic):
            typer.echo(line, err=True)


def _print_properties(fit: Fit, format: str) -> None:
    from wirecost.cli.output import console, safe, table

    out = console(format)
    fitted = [p for p in fit.properties if p.fitted]
    inputs = ", ".join(fit.inputs[:3]) + (" ..." if len(fit.inputs) > 3 else "")
    title = f"{fit.name}, from {fit.rows} rows: {inputs}"
    if fitted:
        body = [[p.name, f"{p.start:.4g}", f"{p.value:.4g}", p.unit, _within(p)] for p in fitted]
        out.print(table(title, ["property", "before", "after", "unit", "90 % interval"], body))
    else:
        out.print(safe(f"{title}: the measurements determine no property"))
    reasons: dict[str, list[str]] = {}
    for p in fit.properties:
        if not p.fitted:
            reasons.setdefault(p.reason or "", []).append(
                f"{p.name} ({p.measurements})" if p.measurements else p.name
            )
    body = [[reason, len(names), ", ".join(names)] for reason, names in reasons.items()]
    if body:
        out.print(
            table(
                "Not fitted, kept as before",
                ["reason", "", "properties (measurements that depend on them)"],
                body,
            )
        )


def _print_errors(fit: Fit, format: str) -> None:
    from wirecost.cli.output import console, percent, plain, print_diagnostics, safe, table

    out, errors = console(format), fit.errors
    shown = percent if fit.unit == "s" else plain
    lines = [["rows that were fitted", shown(errors.fitted), shown(errors.presets)]]
    if errors.held_out is not None:
        lines.append([f"rows left out ({errors.how})", shown(errors.held_out), shown(errors.held_out_presets)])
    out.print(table(f"Mean error of {fit.name}", ["", "fit", "presets"], lines))
    if errors.held_out is None:
        out.print(safe(f"  not judged on rows left out: {errors.how}"))
    elif not fit.beats_presets:
        out.print("  the fit is no better than the presets on rows that it did not see")
    if errors.spread is not None:
        out.print(f"  nine in ten rows left out lie within {percent(errors.spread)} of their prediction")
    print_diagnostics(out, fit.diagnostics)


def _within(fitted: Fitted) -> str:
    from wirecost.cli.output import percent

    assert fitted.within is not None
    if not fitted.determined:
        return "determined only with others"
    return f"within {percent(fitted.within, 0)}" if fitted.within < 1 else "its size hardly matters"
