"""`wirecost predict`: one iteration (or every experiment of a study), its parts, its memory, and how sure that
is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli import _setup as options

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup


def predict(
    workload: Annotated[str | None, options.WORKLOAD] = None,
    cluster: Annotated[str | None, options.CLUSTER] = None,
    plan: options.Plan = None,
    stack: options.Stack = None,
    gpus: options.Gpus = None,
    micro_batch: options.MicroBatch = 1,
    global_batch: options.GlobalBatch = None,
    tensor_parallel: options.TensorParallel = None,
    pipeline_parallel: options.PipelineParallel = None,
    virtual_stages: options.VirtualStages = None,
    pipeline_schedule: options.PipelineSchedule = None,
    context_parallel: options.ContextParallel = None,
    expert_parallel: options.ExpertParallel = None,
    data_parallel: options.DataParallel = None,
    sharding_group: options.ShardingGroup = None,
    sequence_parallel: options.SequenceParallel = None,
    recompute: options.Recompute = None,
    precision: options.Precision = None,
    matrix_precision: options.MatrixPrecision = None,
    sequence_length: options.SequenceLength = None,
    bandwidth: options.Bandwidth = None,
    calibration: options.Calibration = None,
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
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Predict an iteration: breakdown, comm fraction, tokens/s, MFU and memory, with an interval.

    Example: wirecost predict llama-3-8b --cluster dgx-h100 --gpus 64 --sweep bandwidth=100Gb/s..3.2Tb/s

    A study before it is run: wirecost predict --study study.yaml --calibration mine --out predictions
    """
    from wirecost.cli.output import check_format
    from wirecost.errors import SpecError

    check_format(format)
    if study:
        if workload:
            raise SpecError("a study names its own workloads: leave the workload out")
        named = {"calibration": str(calibration) if calibration else None, "cluster": cluster, "stack": stack}
        _study(study, named, out, format)
        return
    if out:
        raise SpecError("--out is for --study; one prediction is printed, as JSON with --format json")
    if workload is None:
        raise SpecError("what to predict is missing: a workload (`wirecost presets`), or --study")
    degrees = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "virtual_stages": virtual_stages,
        "pipeline_schedule": pipeline_schedule,
        "context_parallel": context_parallel,
        "expert_parallel": expert_parallel,
        "data_parallel": data_parallel,
        "sharding_group": sharding_group,
        "sequence_parallel": sequence_parallel,
        "recompute": recompute,
        "precision": precision,
        "matrix_precision": matrix_precision,
    }
    setup = options.Job(
        workload,
        cluster,
        plan=plan,
        stack=stack,
        gpus=gpus,
        micro_batch=micro_batch,
        global_batch=global_batch,
        bandwidth=bandwidth,
        sequence_length=sequence_length,
        calibration=calibration,
        degrees=degrees,
    ).setup()
    if plot and not sweep:
        raise SpecError("--plot draws a sweep: say --sweep gpus=8..512, for example")
    if sweep:
        _sweep(setup, sweep, plot, format)
    else:
        _one(setup, format)


def _one(setup: Setup, format: str) -> None:
    import json

    from wirecost.prediction.predict import largest_micro_batch
    from wirecost.prediction.predict import predict as run

    result = run(setup)
    if format == "json":
        data = json.loads(result.breakdown.model_dump_json())
        data["prediction"] = {
            "iteration_s": result.total_s,
            "comm_fraction": result.comm_fraction,
            "tokens_per_s": result.tokens_per_s,
            "mfu": result.mfu,
            "fits": result.fits,
            "largest_micro_batch": largest_micro_batch(setup),
        }
        typer.echo(json.dumps(data))
        return
    from wirecost.cli.show import show_prediction

    show_prediction(result, largest_micro_batch(setup))


def _sweep(setup: Setup, text: str, plot: Path | None, format: str) -> None:
    import json

    from wirecost.cli.show import show_sweep
    from wirecost.prediction.sweep import parse_axis
    from wirecost.prediction.sweep import sweep as run
    from wirecost.report.sweep_figure import write_sweep_figure

    axis, values = parse_axis(text)
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
    else:
        show_sweep(points, axis)
        if plot:
            typer.echo(f"wrote {plot}", err=True)


def _study(name: str, named: dict[str, str | None], out: Path | None, format: str) -> None:
    """Predicts a study; `named` are the calibration, cluster and stack that predictions rest on."""
    import json

    from wirecost.calibration.saved import read
    from wirecost.cli.show import show_study
    from wirecost.errors import SpecError
    from wirecost.prediction.study import predict_study, write_predictions
    from wirecost.spec import load_spec
    from wirecost.study.runner import load_study

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
    if format == "json":
        rows = [
            {
                "cell": each.experiment.slug,
                "iteration_s": each.prediction.total_s if each.prediction else None,
                "comm_fraction": each.prediction.comm_fraction if each.prediction else None,
                "refused": each.refused,
            }
            for each in predicted
        ]
        typer.echo(json.dumps({"study": loaded.name, "predicted": rows}))
    else:
        show_study(loaded.name, predicted)
        if out:
            typer.echo(f"wrote {out}", err=True)
    if not any(each.prediction for each in predicted):
        raise typer.Exit(1)
