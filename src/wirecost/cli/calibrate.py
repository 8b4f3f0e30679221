"""`wirecost calibrate`: fit the model to what is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wirecost.calibration.assemble import Calibration
    from wirecost.model.calibrate_tables import Calibration as TableCalibration


def calibrate(
    measured: Annotated[
        list[Path],
        typer.Argument(
            help="A study's results, an experiment's directory, `bench --format json`, traces, a breakdown, or "
            "CSV tables."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write cluster and stack YAML there (not for CSV).")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="Of results stores take only runs of so many ranks.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="What isn't measured (nodes, NICs, links): preset or YAML."),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Stack to start from: preset or YAML file.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU of the runs, where they don't say.")] = None,
    workload: Annotated[str | None, typer.Option("--workload", help="What a trace trained.")] = None,
    plan: Annotated[str | None, typer.Option("--plan", "-p", help="How a trace's ranks trained it.")] = None,
    micro_batch: Annotated[int | None, typer.Option("--micro-batch", "-b", help="Of a trace.")] = None,
    global_batch: Annotated[int | None, typer.Option("--global-batch", "-B", help="Of a trace.")] = None,
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free", metavar="PROPERTY", help="CSV: 'stack NAME PROPERTY', 'gpu ...', 'link ...' (repeatable)."
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="CSV: folds of the cross-validation; 0 for none.")] = 5,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="COLUMN", help="CSV: hold out whole values of this column instead."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="CSV: write the values as YAML.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Fit properties of devices, links and software stacks, and report the error on what was held out of the fit.

    From one-rank runs and a benchmark: `wirecost calibrate wirecost-runs/one-rank bench.json --out mine`, then
    `wirecost predict ... --cluster mine/cluster-NAME.yaml --stack mine/stack-fp32.yaml`, or a whole study with
    `wirecost predict --study STUDY.yaml --calibration mine --out predictions`.

    CSV tables have the columns of the reference tables (n_layers, hidden, gpu, mbs, iter_s, ...), or those of
    communication fractions, or of collective benchmarks (size_bytes, time_us, ...). Use the result with
    `wirecost predict --calibration FILE`.
    """
    import json

    from wirecost.calibration.assemble import calibrate as fit
    from wirecost.calibration.assemble import write
    from wirecost.calibration.sources import Told, gather
    from wirecost.cli.output import check_format
    from wirecost.errors import SpecError
    from wirecost.model.calibrate_tables import calibrate_tables
    from wirecost.model.load import one
    from wirecost.model.store import save_calibration

    check_format(format)
    base = one("cluster", cluster) if cluster else None
    told = Told(
        one("workload", workload) if workload else None,
        one("plan", plan) if plan else None,
        micro_batch,
        global_batch,
        base.gpus_per_node if base else None,
    )
    found = gather(measured, told, ranks=ranks)
    if found.tables:
        if len(found.tables) != len(measured):
            raise SpecError("CSV tables fit presets, runs and benchmarks make a cluster: calibrate them apart")
        if out:
            raise SpecError("--out writes a cluster from runs and benchmarks; a table's values go to --save FILE")
        result = calibrate_tables(measured, free=free, folds=folds, group=group)
        if save:
            if any(save.exists() and save.samefile(path) for path in measured):
                raise SpecError(f"--save {save}: is one of the tables; name another file to write")
            save_calibration(result, save, [str(path) for path in measured])
        _print_tables(result, format, save)
        return
    if save:
        raise SpecError("--save holds a table's values; a cluster and stack from runs go to --out DIR")
    made = fit(found, base=base, stack=one("stack", stack) if stack else None, gpu_name=gpu)
    written = write(made, out) if out else []
    if format == "json":
        typer.echo(json.dumps(_as_json(made, [str(p) for p in written])))
        return
    _print_calibration(made)
    for path in written:
        typer.echo(f"wrote {path}", err=True)


def _as_json(made: Calibration, written: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "devices": [
            {
                "gpu": fit.gpu.name,
                "stack": fit.stack.name,
                "runs": fit.runs,
                "properties": [asdict(one) for one in fit.told],
                "errors": fit.errors,
                "errors_held_out": fit.held_out,
                "spread": fit.stack.spread,
            }
            for fit in made.devices
        ],
        "networks": [
            {
                "network": fit.network,
                "kind": fit.kind,
                "properties": [asdict(one) for one in fit.told],
                "points": fit.points,
                "mape": fit.mape,
                "sources": fit.sources,
            }
            for fit in made.networks
        ],
        "notes": made.notes,
        "wrote": written,
    }


def _print_calibration(made: Calibration) -> None:
    from wirecost.cli.output import console, percent, safe, table
    from wirecost.text import printable

    out = console()

    def values(told: list[Any]) -> list[list[str]]:
        return [
            [
                one.name,
                f"{one.start:.4g}",
                f"{one.value:.4g}",
                _source(one.within),
            ]
            for one in told
        ]

    def _source(within: float | None) -> str:
        if within is None:
            return "not told: start value"
        return f"fitted, within {percent(within, 0)}" if within < 1 else "fitted, its size hardly matters"

    head = ["property", "before", "after", "source"]
    for device in made.devices:
        title = f"{device.gpu.name} under {device.stack.name}, from {len(device.runs)} runs (90 % intervals)"
        out.print(table(title, head, values(device.told)))
        error = sum(map(abs, device.errors)) / len(device.errors)
        line = f"  mean error of compute {percent(error)} as fitted"
        if device.held_out:
            held = sum(map(abs, device.held_out)) / len(device.held_out)
            line += f", {percent(held)} on runs held out one at a time"
        out.print(line + f"; interval +-{percent(device.stack.spread)}")
        for doubt in device.doubts:
            out.print(f"  doubtful: {safe(doubt)}")
    for network in made.networks:
        title = f"network {network.network} ({network.kind}), from {network.points} points"
        out.print(table(title, head, values(network.told)))
        out.print(f"  mean error {percent(network.mape)} as fitted")
    for note in made.notes:
        typer.echo(f"note: {printable(note)}", err=True)


def _print_tables(result: TableCalibration, format: str, save: Path | None) -> None:
    import json

    from wirecost.cli.output import console, percent, table

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
