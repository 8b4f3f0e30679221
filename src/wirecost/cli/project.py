"""`wirecost project`: the at-scale study's projection of a measured breakdown."""

from __future__ import annotations

from typing import Annotated

import typer

from wirecost.cli.output import FORMAT, check_format, console, percent, print_csv, table


def project(
    measured: Annotated[str, typer.Argument(help="A breakdown's JSON file, or traces, of one node or a few.")],
    gpus: Annotated[list[int], typer.Option("--gpus", help="GPUs to project to; may be repeated.")],
    efficiency: Annotated[
        float | None,
        typer.Option(help="Bus bandwidth there over that of the measurement, as `wirecost bench` gives them."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Or take it from a cluster's links, by the model.")
    ] = None,
    stack: Annotated[str, typer.Option("--stack", "-s", help="Software stack for --cluster.")] = "generic",
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Project a measured iteration to more GPUs, by weak scaling.

    The formula is that of the at-scale study (doi 10.1145/3639034; docs/explanation/cost-model.md)."""
    import json
    from dataclasses import asdict

    from wirecost.comparison.sources import load_breakdown
    from wirecost.costmodel.machine import machine_of
    from wirecost.errors import SpecError
    from wirecost.prediction.projection import MEASURED_SPREAD, MODELLED_SPREAD, network_efficiency
    from wirecost.prediction.projection import project as project_to
    from wirecost.spec import Precision, load_spec

    format = check_format(format)
    if (efficiency is None) == (cluster is None):
        raise SpecError("a projection needs either --efficiency or --cluster")
    breakdown = load_breakdown(measured)
    machine = None
    if cluster:
        # Links don't depend on the precision, and every GPU computes in FP32.
        machine = machine_of(load_spec("cluster", cluster), load_spec("stack", stack), Precision.FP32)
    projections = []
    for target in gpus:
        share = efficiency
        if machine is not None:
            share = network_efficiency(machine, breakdown.world_size, target)
        assert share is not None
        spread = MEASURED_SPREAD if machine is None else MODELLED_SPREAD
        projections.append(project_to(breakdown, target, share, spread))
    if format == "csv":
        print_csv([asdict(p) for p in projections])
        return
    if format == "json":
        typer.echo(json.dumps([asdict(p) for p in projections], indent=1))
        return
    rows = [
        (
            p.target,
            f"{p.efficiency:.3f}",
            f"{p.iteration_s * 1e3:.1f} ({p.low_s * 1e3:.1f} to {p.high_s * 1e3:.1f})",
            f"{percent(p.comm_fraction)} ({percent(p.comm_fraction_low)} to {percent(p.comm_fraction_high)})",
            f"{p.speedup:.3f}",
        )
        for p in projections
    ]
    title = f"Projected (predicted) from {breakdown.world_size} {breakdown.source} ranks"
    console(format).print(
        table(title, ("GPUs", "network efficiency", "iteration ms", "comm fraction", "throughput a GPU"), rows)
    )
