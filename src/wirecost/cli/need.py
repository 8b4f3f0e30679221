"""`wirecost need`: how much network (or batch) a comm fraction takes."""

from __future__ import annotations

from typing import Annotated

import typer

from wirecost.cli.predict import CLUSTER, PLAN, STACK, WORKLOAD, build


def need(
    workload: Annotated[str, WORKLOAD],
    cluster: Annotated[str, CLUSTER],
    fraction: Annotated[
        float, typer.Option("--fraction", "-f", help="Largest share of communication, like 0.2.")
    ] = 0.2,
    what: Annotated[str, typer.Option("--of", help="bandwidth, micro-batch or accumulation.")] = "bandwidth",
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
    data_parallel: Annotated[
        str | None, typer.Option("--data-parallel", help="all_reduce, ddp, zero1, zero2 or zero3.")
    ] = None,
    recompute: Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")] = None,
    sequence_length: Annotated[int | None, typer.Option("--sequence-length", help="Tokens of a sequence.")] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Another rate of each node's NICs together.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Find the bandwidth (or micro-batch, or accumulation) at which the comm fraction falls to --fraction.

    Example: wirecost need llama-3-70b --cluster dgx-h100 --gpus 256 --data-parallel zero3 --fraction 0.1
    """
    import json

    from wirecost.cli.output import check_format, percent
    from wirecost.errors import SpecError, one_of
    from wirecost.model import need as solver
    from wirecost.units import format_rate_bps

    check_format(format)
    solvers = {
        "bandwidth": solver.bandwidth,
        "micro-batch": solver.micro_batch,
        "accumulation": solver.accumulation,
    }
    if what not in solvers:
        raise SpecError(one_of("quantity", what, solvers))
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
        data_parallel=data_parallel,
        recompute=recompute,
        sequence_length=sequence_length,
    )
    now = solver.fraction(made)
    found = solvers[what](made, fraction)
    given = made.cluster.inter_node.rate * made.cluster.nics_per_node
    if format == "json":
        typer.echo(
            json.dumps(
                {
                    "of": what,
                    "limit": fraction,
                    "value": found.value,
                    "comm_fraction": found.reached,
                    "floor": found.floor,
                    "now": now,
                    "fits": found.prediction.fits if found.prediction else None,
                }
            )
        )
        raise typer.Exit(0 if found.value is not None else 1)
    title = f"{made.workload.name} on {made.gpus} GPUs of {made.cluster.name}, stack {made.stack.name} (predicted)"
    typer.echo(f"{title}: comm fraction {percent(now)} now")
    if found.value is None:
        typer.echo(
            f"No {what} brings it to {percent(fraction)}: {percent(found.floor)} stay however large it gets "
            "(communication inside nodes, latency)."
        )
        raise typer.Exit(1)
    if what == "bandwidth":
        typer.echo(
            f"For {percent(fraction)} each node needs {format_rate_bps(found.value, 3)} "
            f"({format_rate_bps(found.value / made.cluster.gpus_per_node, 3)} a GPU); it has "
            f"{format_rate_bps(given, 3)}."
        )
    else:
        fits = "" if found.prediction and found.prediction.fits else " - which does not fit in memory"
        batch = found.prediction.made.global_batch if found.prediction else 0
        typer.echo(f"For {percent(fraction)} the {what} must be {found.value:.0f}, global batch {batch}{fits}.")
