"""`wirecost predict`: one iteration (or every cell of a study), its parts, its memory, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli import _setup as options

if TYPE_CHECKING:
    from wirecost.model.setup import Setup


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
        str | None, typer.Option("--study", help="Predict every cell of this study instead of one workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="With --study: write each cell's prediction there.")
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
        _study(study, calibration, cluster, stack, out, format)
        return
    if out:
        raise SpecError("--out is for --study; one prediction is printed, as JSON with --format json")
    if workload is None:
        raise SpecError("what to predict is missing: a workload (`wirecost presets`), or --study")
    made = options.build(
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
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        virtual_stages=virtual_stages,
        pipeline_schedule=pipeline_schedule,
        context_parallel=context_parallel,
        expert_parallel=expert_parallel,
        data_parallel=data_parallel,
        sharding_group=sharding_group,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        precision=precision,
        matrix_precision=matrix_precision,
    )
    if plot and not sweep:
        raise SpecError("--plot draws a sweep: say --sweep gpus=8..512, for example")
    if sweep:
        _sweep(made, sweep, plot, format)
    else:
        _one(made, format)


def _one(made: Setup, format: str) -> None:
    import json

    from wirecost.model.predict import largest_micro_batch
    from wirecost.model.predict import predict as run

    result = run(made)
    if format == "json":
        data = json.loads(result.breakdown.model_dump_json())
        data["prediction"] = {
            "iteration_s": float(result.times.total_s),
            "comm_fraction": float(result.times.exposed_comm_s / result.times.total_s),
            "tokens_per_s": result.tokens_per_s,
            "mfu": result.mfu,
            "fits": result.fits,
            "largest_micro_batch": largest_micro_batch(made),
        }
        typer.echo(json.dumps(data))
        return
    from wirecost.cli.show import show_prediction

    show_prediction(result, largest_micro_batch(made))


def _sweep(made: Setup, text: str, plot: Path | None, format: str) -> None:
    import json

    from wirecost.cli.show import show_sweep
    from wirecost.model.sweep import parse_axis
    from wirecost.model.sweep import plot as draw
    from wirecost.model.sweep import sweep as run

    axis, values = parse_axis(text)
    points = run(made, axis, values)
    if plot:
        draw(points, axis, f"{made.workload.name} on {made.cluster.name}, plan {made.plan.name} (predicted)", plot)
    if format == "json":
        typer.echo(json.dumps({"axis": axis, "points": [p.row() for p in points]}))
    else:
        show_sweep(points, axis)
        if plot:
            typer.echo(f"wrote {plot}", err=True)


def _study(
    name: str, calibration: Path | None, cluster: str | None, stack: str | None, out: Path | None, format: str
) -> None:
    import json

    from wirecost.calibration.assemble import read
    from wirecost.cli.show import show_study
    from wirecost.errors import SpecError
    from wirecost.model.load import one
    from wirecost.study.predicted import predict_study, write_predictions
    from wirecost.study.runner import load_study

    if calibration is not None and not calibration.is_dir():
        raise SpecError(f"{calibration}: a study takes the directory that `wirecost calibrate --out` wrote")
    if calibration is None and cluster is None:
        raise SpecError("a study is predicted from --calibration DIR (`wirecost calibrate --out`), or --cluster")
    loaded = load_study(name)
    cells = predict_study(
        loaded,
        read(calibration) if calibration else None,
        cluster=one("cluster", cluster) if cluster else None,
        stack=one("stack", stack) if stack else None,
    )
    if out:
        rests_on = {"calibration": str(calibration) if calibration else None, "cluster": cluster, "stack": stack}
        write_predictions(cells, loaded, rests_on, out)
    if format == "json":
        rows = [
            {
                "cell": cell.experiment.slug,
                "iteration_s": float(cell.prediction.times.total_s) if cell.prediction else None,
                "comm_fraction": (
                    float(cell.prediction.times.exposed_comm_s / cell.prediction.times.total_s)
                    if cell.prediction
                    else None
                ),
                "refused": cell.refused,
            }
            for cell in cells
        ]
        typer.echo(json.dumps({"study": loaded.name, "predicted": rows}))
    else:
        show_study(loaded.name, cells)
        if out:
            typer.echo(f"wrote {out}", err=True)
    if not any(cell.prediction for cell in cells):
        raise typer.Exit(1)
