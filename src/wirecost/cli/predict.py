"""`wirecost predict`: one iteration (or every experiment of a study), its parts, its memory, and how sure that
is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.job_options import WORKLOAD, Job, assumed_line, with_job_options
from wirecost.cli.output import FORMAT, check_format, console, print_csv, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirecost.costmodel.setup import Setup


@with_job_options
def predict(
    job: Job,
    workload: Annotated[str | None, WORKLOAD] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", help="One prediction for each value: gpus=8..512, bandwidth=100Gb/s..1.6Tb/s, ..."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the sweep into this .png or .svg.")] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Predict every experiment of this study instead of one workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="With --study: write each prediction there.")
    ] = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Predict an iteration, its parts and its memory.

    The answer has the breakdown, the comm fraction, tokens/s and MFU, with an interval.

    Example: wirecost predict llama-3-8b --cluster dgx-h100 --gpus 64 --sweep bandwidth=100Gb/s..3.2Tb/s

    A study before it is run: wirecost predict --study study.yaml --calibration mine --out predictions
    """
    from wirecost.errors import SpecError

    format = check_format(format)
    if study:
        if workload:
            raise SpecError("a study names its own workloads: leave the workload out")
        keys = ("calibration", "cluster", "stack")
        named = {key: None if (value := job.options.get(key)) is None else str(value) for key in keys}
        _study(study, named, out, format)
        return
    if out:
        raise SpecError("--out is for --study; one prediction is printed, as JSON with --format json")
    if workload is None:
        raise SpecError("what to predict is missing: a workload (`wirecost presets`), or --study")
    if plot and not sweep:
        raise SpecError("--plot draws a sweep: say --sweep gpus=8..512, for example")
    if sweep:
        from wirecost.prediction.sweep import parse_axis, with_first_value

        keep_batch = job.options.get("global_batch") is not None
        axis, values = parse_axis(sweep)
        job = Job(with_first_value(job.options, axis, values))
        setup = job.setup(workload)
        _sweep(setup, axis, values, plot, format)
        if format == "text":
            varied = {axis} if keep_batch else {axis, "global_batch"}
            assumed = {key: value for key, value in job.assumed(setup).items() if key not in varied}
            _print_basis(setup, assumed, format)
    else:
        setup = job.setup(workload)
        _predict_one(setup, job.assumed(setup), format)


def _predict_one(setup: Setup, assumed: dict[str, str], format: str) -> None:
    import json
    from dataclasses import asdict

    from wirecost.prediction.basis import basis_of
    from wirecost.prediction.predict import largest_micro_batch
    from wirecost.prediction.predict import predict as run
    from wirecost.prediction.ranges import comm_fraction_range

    result = run(setup)
    if format == "csv":
        from wirecost.api.predictions import PredictionView

        print_csv(PredictionView(result).rows())
        return
    if format == "json":
        shares = comm_fraction_range(setup)
        data = json.loads(result.breakdown.model_dump_json())
        data["prediction"] = {
            "iteration_s": result.total_s,
            "comm_fraction": result.comm_fraction,
            "comm_fraction_low": shares.low,
            "comm_fraction_high": shares.high,
            "tokens_per_s": result.tokens_per_s,
            "tokens_per_s_low": result.tokens_per_s_range[0],
            "tokens_per_s_high": result.tokens_per_s_range[1],
            "mfu": result.mfu,
            "mfu_low": result.mfu_range[0],
            "mfu_high": result.mfu_range[1],
            "fits": result.fits,
            "largest_micro_batch": largest_micro_batch(setup),
            "assumed": assumed,
            "basis": [asdict(each) for each in basis_of(setup)],
        }
        typer.echo(json.dumps(data))
        return
    from wirecost.cli.show import show_prediction

    show_prediction(result, largest_micro_batch(setup), comm_fraction_range(setup), format)
    _print_basis(setup, assumed, format)


def _print_basis(setup: Setup, assumed: dict[str, str], format: str) -> None:
    """Prints the provenance of the parts of a prediction and its assumptions, a line each."""
    from wirecost.prediction.basis import basis_line, basis_of

    out = console(format)
    out.print(safe(basis_line(basis_of(setup))), soft_wrap=True)
    out.print(assumed_line(assumed), soft_wrap=True)


def _sweep(setup: Setup, axis: str, values: Sequence[str], plot: Path | None, format: str) -> None:
    import json

    from wirecost.cli.show import show_sweep
    from wirecost.prediction.sweep import sweep as run
    from wirecost.report.sweep_figure import write_sweep_figure

    points = run(setup, axis, values)
    if plot:
        write_sweep_figure(
            points,
            axis,
            f"{setup.workload.name} on {setup.cluster.name}, plan {setup.plan.name} (predicted)",
            plot,
        )
    if format == "json":
        typer.echo(json.dumps({"axis": axis, "points": [p.row() for p in points]}))
    elif format == "csv":
        print_csv([p.row() for p in points])
    else:
        show_sweep(points, axis, format)
    if plot:
        typer.echo(f"wrote {plot}", err=True)


def _study(name: str, named: dict[str, str | None], out: Path | None, format: str) -> None:
    """Predicts a study. `named` are the names of the calibration, cluster and stack that predictions use."""
    import json

    from wirecost.calibration.saved import read
    from wirecost.cli.show import show_study
    from wirecost.errors import SpecError
    from wirecost.prediction.study import predict_study, write_predictions
    from wirecost.spec import load_spec
    from wirecost.study.loading import load_study

    calibration, cluster, stack = named["calibration"], named["cluster"], named["stack"]
    if calibration is None and cluster is None:
        raise SpecError("a study is predicted from --calibration DIR (`wirecost calibrate --out`), or --cluster")
    loaded = load_study(name)
    predicted = predict_study(
        loaded,
        read(Path(calibration)) if calibration else None,
        cluster=load_spec("cluster", cluster) if cluster else None,
        stack=load_spec("stack", stack) if stack else None,
    )
    if out:
        write_predictions(predicted, loaded, named, out)
    if format in ("json", "csv"):
        rows = [
            {
                "cell": each.experiment.slug,
                "iteration_s": each.prediction.total_s if each.prediction else None,
                "comm_fraction": each.prediction.comm_fraction if each.prediction else None,
                "refused": each.refused,
            }
            for each in predicted
        ]
        if format == "csv":
            print_csv(rows)
        else:
            typer.echo(json.dumps({"study": loaded.name, "predicted": rows}))
    else:
        show_study(loaded.name, predicted, format)
    if out:
        typer.echo(f"wrote {out}", err=True)
    if not any(each.prediction for each in predicted):
        raise typer.Exit(1)
