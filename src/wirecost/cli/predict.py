"""`wirecost predict`: one iteration, its parts, its memory, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

WORKLOAD = typer.Argument(help="Workload preset or YAML file.")
CLUSTER = typer.Option("--cluster", "-c", help="Cluster preset or YAML file.")
PLAN = typer.Option("--plan", "-p", help="Plan preset or YAML file.")
STACK = typer.Option(
    "--stack",
    "-s",
    help="Software stack preset or YAML file; default megatron-core, or fsdp-flash without TP and PP.",
)


def build(
    workload: str,
    cluster: str,
    plan: str | None,
    stack: str | None,
    gpus: int | None,
    micro_batch: int,
    global_batch: int | None,
    bandwidth: str | None,
    calibration: Path | None = None,
    **degrees: Any,
) -> Any:
    """The checked Setup that the options mean."""
    import os

    # numpy's linear algebra starts a thread for each core when it is imported, and nothing here uses it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from wirecost.model.load import one, with_bandwidth, with_nodes
    from wirecost.model.setup import setup

    sequence = degrees.pop("sequence_length", None)
    given = {key: value for key, value in degrees.items() if value is not None}
    if plan is None:
        from wirecost.spec import Plan, validate

        many = any(given.get(key, 1) > 1 for key in ("tensor_parallel", "pipeline_parallel"))
        base = {"name": "options", "precision": "bf16", "data_parallel": "zero1" if many else "zero3"}
        made_plan = validate(Plan, {**base, **given}, "options")
    else:
        made_plan = one("plan", plan, **given)
    machine = with_nodes(with_bandwidth(one("cluster", cluster), bandwidth), gpus)
    return setup(
        one("workload", workload, sequence_length=sequence),
        made_plan,
        machine,
        stack=one("stack", stack) if stack else None,
        gpus=gpus,
        micro_batch=micro_batch,
        global_batch=global_batch,
    )


def predict(
    workload: Annotated[str, WORKLOAD],
    cluster: Annotated[str, CLUSTER],
    plan: Annotated[str | None, PLAN] = None,
    stack: Annotated[str | None, STACK] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", "-n", help="GPUs; default all of the cluster.")] = None,
    micro_batch: Annotated[int, typer.Option("--micro-batch", "-b", help="Sequences of one micro-batch.")] = 1,
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", "-B", help="Sequences of one iteration.")
    ] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option("--tensor-parallel", "--tp", help="Tensor-parallel degree.")
    ] = None,
    pipeline_parallel: Annotated[
        int | None, typer.Option("--pipeline-parallel", "--pp", help="Pipeline stages.")
    ] = None,
    virtual_stages: Annotated[
        int | None, typer.Option("--virtual-stages", "--vpp", help="Chunks of each stage.")
    ] = None,
    context_parallel: Annotated[
        int | None, typer.Option("--context-parallel", "--cp", help="Context-parallel degree.")
    ] = None,
    expert_parallel: Annotated[
        int | None, typer.Option("--expert-parallel", "--ep", help="Expert-parallel degree.")
    ] = None,
    data_parallel: Annotated[
        str | None, typer.Option("--data-parallel", help="all_reduce, ddp, zero1, zero2 or zero3.")
    ] = None,
    sequence_parallel: Annotated[
        bool | None,
        typer.Option(
            "--sequence-parallel/--no-sequence-parallel", help="Split what lies between tensor-parallel regions."
        ),
    ] = None,
    recompute: Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")] = None,
    precision: Annotated[str | None, typer.Option("--precision", help="fp32, bf16 or fp16.")] = None,
    matrix_precision: Annotated[
        str | None, typer.Option("--matrix-precision", help="fp8 or fp4 for the layers' products.")
    ] = None,
    sequence_length: Annotated[int | None, typer.Option("--sequence-length", help="Tokens of a sequence.")] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Another rate of each node's NICs together, like '400 Gb/s'.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Fitted values that `wirecost calibrate --save` wrote.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", help="One prediction for each value: gpus=8..512, bandwidth=100Gb/s..1.6Tb/s, ..."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the sweep into this .png or .svg.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Predict an iteration: breakdown, comm fraction, tokens/s, MFU and memory, with an interval.

    Example: wirecost predict llama-3-8b --cluster dgx-h100 --gpus 64 --sweep bandwidth=100Gb/s..3.2Tb/s
    """
    from wirecost.cli.output import check_format
    from wirecost.errors import SpecError

    check_format(format)
    made = build(
        workload,
        cluster,
        plan,
        stack,
        gpus,
        micro_batch,
        global_batch,
        bandwidth,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        virtual_stages=virtual_stages,
        context_parallel=context_parallel,
        expert_parallel=expert_parallel,
        data_parallel=data_parallel,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        precision=precision,
        matrix_precision=matrix_precision,
        sequence_length=sequence_length,
    )
    if calibration:
        from wirecost.model.store import apply_calibration

        made = apply_calibration(made, calibration)
    if plot and not sweep:
        raise SpecError("--plot draws a sweep: say --sweep gpus=8..512, for example")
    if sweep:
        _sweep(made, sweep, plot, format)
    else:
        _one(made, format)


def _one(made: Any, format: str) -> None:
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


def _sweep(made: Any, text: str, plot: Path | None, format: str) -> None:
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
