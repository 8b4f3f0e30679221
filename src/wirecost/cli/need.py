"""`wirecost need`: how much network (or batch) a comm fraction takes."""

from __future__ import annotations

from typing import Annotated

import typer

from wirecost.cli import _setup as options


def need(
    workload: Annotated[str, options.WORKLOAD],
    cluster: Annotated[str | None, options.CLUSTER] = None,
    fraction: Annotated[
        float, typer.Option("--fraction", "-f", help="Largest share of communication, like 0.2.")
    ] = 0.2,
    what: Annotated[str, typer.Option("--of", help="bandwidth, micro-batch or accumulation.")] = "bandwidth",
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
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Find the bandwidth (or micro-batch, or accumulation) at which the comm fraction falls to --fraction.

    Example: wirecost need llama-3-70b --cluster dgx-h100 --gpus 256 --data-parallel zero3 --fraction 0.1
    """
    import json

    from wirecost.cli.output import check_format, percent
    from wirecost.errors import SpecError, one_of
    from wirecost.prediction import need as solver
    from wirecost.units import format_rate_bps

    check_format(format)
    solvers = {
        "bandwidth": solver.bandwidth,
        "micro-batch": solver.micro_batch,
        "accumulation": solver.accumulation,
    }
    if what not in solvers:
        raise SpecError(one_of("quantity", what, solvers))
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
    now = solver.fraction(setup)
    answer = solvers[what](setup, fraction)
    given = setup.cluster.inter_node.rate * setup.cluster.nics_per_node
    if format == "json":
        typer.echo(
            json.dumps(
                {
                    "of": what,
                    "limit": fraction,
                    "value": answer.value,
                    "comm_fraction": answer.reached,
                    "floor": answer.floor,
                    "now": now,
                    "fits": answer.prediction.fits if answer.prediction else None,
                }
            )
        )
        raise typer.Exit(0 if answer.value is not None else 1)
    title = (
        f"{setup.workload.name} on {setup.gpus} GPUs of {setup.cluster.name}, stack {setup.stack.name} (predicted)"
    )
    typer.echo(f"{title}: comm fraction {percent(now)} now")
    if answer.value is None:
        typer.echo(
            f"No {what} brings it to {percent(fraction)}: {percent(answer.floor)} stay however large it gets "
            "(communication inside nodes, latency)."
        )
        raise typer.Exit(1)
    if what == "bandwidth":
        typer.echo(
            f"For {percent(fraction)} each node needs {format_rate_bps(answer.value, 3)} "
            f"({format_rate_bps(answer.value / setup.cluster.gpus_per_node, 3)} a GPU); it has "
            f"{format_rate_bps(given, 3)}."
        )
    else:
        fits = "" if answer.prediction and answer.prediction.fits else " - which does not fit in memory"
        batch = answer.prediction.setup.global_batch if answer.prediction else 0
        typer.echo(f"For {percent(fraction)} the {what} must be {answer.value:.0f}, global batch {batch}{fits}.")
