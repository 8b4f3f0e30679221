"""`wirecost project`: study B's projection of a measured breakdown."""

from __future__ import annotations

from typing import Annotated

import typer


def project(
    measured: Annotated[str, typer.Argument(help="A breakdown's JSON file, or traces, of one node or a few.")],
    gpus: Annotated[list[int], typer.Option("--gpus", "-n", help="GPUs to project to; may be repeated.")],
    efficiency: Annotated[
        float | None,
        typer.Option(help="Bus bandwidth there over that of the measurement, as `wirecost bench` gives them."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Or take it from a cluster's links, by the model.")
    ] = None,
    stack: Annotated[str, typer.Option("--stack", "-s", help="Software stack for --cluster.")] = "generic",
    output_format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Project a measured iteration to more GPUs by the speed-up formula of the at-scale study (weak scaling)."""
    import json
    from dataclasses import asdict

    from wirecost.cli.output import check_format, console, percent, table
    from wirecost.errors import SpecError
    from wirecost.load import load_breakdown
    from wirecost.model.load import one
    from wirecost.model.machine import machine_of
    from wirecost.model.projection import network_efficiency
    from wirecost.model.projection import project as project_to
    from wirecost.spec import Precision

    check_format(output_format)
    if (efficiency is None) == (cluster is None):
        raise SpecError("a projection needs either --efficiency or --cluster")
    breakdown = load_breakdown(measured)
    machine = None
    if cluster:
        # Links don't depend on the precision, and every GPU computes in FP32.
        machine = machine_of(one("cluster", cluster), one("stack", stack), Precision.FP32)
    found = []
    for target in gpus:
        kept = efficiency
        if machine is not None:
            kept = network_efficiency(machine, breakdown.world_size, target)
        assert kept is not None
        found.append(project_to(breakdown, target, kept))
    if output_format == "json":
        typer.echo(json.dumps([asdict(p) for p in found], indent=1))
        return
    rows = [
        (
            p.target,
            f"{p.efficiency:.3f}",
            f"{p.iteration_s * 1e3:.1f}",
            percent(p.comm_fraction),
            f"{p.speedup:.3f}",
        )
        for p in found
    ]
    title = f"Projected (predicted) from {breakdown.world_size} {breakdown.source} ranks"
    console().print(
        table(title, ("GPUs", "network efficiency", "iteration ms", "comm fraction", "throughput a GPU"), rows)
    )
