"""`wirecost whatif`: what another network, other buckets or no straggler would change, from traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMAT, check_format, console, percent, print_csv, print_diagnostics, safe, table
from wirecost.errors import WirecostError, one_of

if TYPE_CHECKING:
    from wirecost.api.whatif_view import WhatIfView


def whatif(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES...",
            help="Traces of all ranks of torch.profiler: files, directories, globs; or a study's results.",
        ),
    ],
    experiment: Annotated[
        str | None,
        typer.Option(
            help="With a study's results: the experiment whose traces are read, or the beginning of its name.",
            metavar="NAME",
        ),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="Another network: the name of a calibrated one, a cluster preset, a cluster's .yaml, a result of "
            "`wirecost bench --format json`, a network of the study. May be repeated.",
            metavar="NAME|FILE",
        ),
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Another network: this much for each rank in one direction ('100 Gb/s').")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="With --bandwidth: time of an empty collective ('20 us').")
    ] = None,
    scale_communication: Annotated[
        float | None, typer.Option(help="Transfers are this many times as fast.", metavar="K")
    ] = None,
    bucket_mib: Annotated[
        float | None, typer.Option(help="Cap of DistributedDataParallel's buckets in MiB.", metavar="N")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option(help="on or off: whether collectives run beside computing.", metavar="on|off")
    ] = None,
    reshard_after_forward: Annotated[
        str | None,
        typer.Option(help="off: FSDP keeps its parameters after the forward pass.", metavar="on|off"),
    ] = None,
    without_straggler: Annotated[
        bool, typer.Option("--without-straggler", help="No rank has more to do than the fastest.")
    ] = False,
    like_rank: Annotated[
        int | None, typer.Option(help="Every rank has the load of this rank.", metavar="R")
    ] = None,
    faster_host: Annotated[
        float | None, typer.Option(help="The host is this many times as fast.", metavar="F")
    ] = None,
    step_time: Annotated[
        str | None,
        typer.Option(help="The job's own step time without the profiler ('238 ms'): tells the host's speed."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="What `wirecost calibrate --out` wrote: its networks are known by name.", metavar="DIR"),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Answer for a range of bandwidths, with the knee of the curve.", metavar="'1 Gb/s:400 Gb/s'"
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="With --sweep: write the curve (.svg, .png, .json).", metavar="FILE")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            help="Write the timeline before and after for ui.perfetto.dev (.gz: compressed).", metavar="FILE"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with both breakdowns and both timelines.", metavar="FILE")
    ] = None,
    rank: Annotated[
        list[str] | None,
        typer.Option(help="FILE=RANK for a file that doesn't tell its rank.", metavar="FILE=RANK"),
    ] = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Say what a change to a job would do, from its traces.

    The recording is replayed first: what the host, the device and the network wait for. Then it is changed and
    replayed again. Changes may be combined.

    Example: wirecost whatif traces/ --bandwidth '400 Gb/s' --latency '20 us'
    """
    from wirecost.api.whatif import what_if

    format = check_format(format)
    if any(path.endswith(".parquet") for path in paths):
        _tables(paths, format)
        return
    if chart is not None and sweep is None:
        raise WirecostError("--chart draws the curve of --sweep: give a range, like --sweep '1 Gb/s:400 Gb/s'")
    view = what_if(
        paths,
        experiment=experiment,
        network=network,
        bandwidth=bandwidth,
        latency=latency,
        scale_communication=scale_communication,
        bucket_mib=bucket_mib,
        overlap=_on_off("--overlap", overlap),
        reshard_after_forward=_on_off("--reshard-after-forward", reshard_after_forward),
        without_straggler=without_straggler,
        like_rank=like_rank,
        faster_host=faster_host,
        step_time=step_time,
        calibration=calibration,
        ranks=rank or (),
        sweep=sweep,
    )
    if perfetto is not None:
        view.write_perfetto(perfetto)
        typer.echo(f"wrote {perfetto}", err=True)
    if html is not None:
        view.write_html(html)
        typer.echo(f"wrote {html}", err=True)
    if chart is not None:
        view.write_chart(chart)
        typer.echo(f"wrote {chart}", err=True)
    if format == "json":
        typer.echo(json.dumps(view.to_dict(), allow_nan=False))
    elif format == "csv":
        print_csv(view.rows("sweep" if sweep else "answers"))
    else:
        _show(view, format)


def _tables(paths: list[str], format: str) -> None:
    """Prints what stragglers cost in the jobs of tables of operations."""
    from wirecost.api.stragglers import stragglers

    views = [stragglers(path) for path in paths]
    if format == "json":
        found = [view.to_dict() for view in views]
        typer.echo(json.dumps(found[0] if len(found) == 1 else found, allow_nan=False))
    elif format == "csv":
        print_csv([{"table": path, **row} for path, view in zip(paths, views, strict=True) for row in view.rows()])
    else:
        out = console(format)
        for view in views:
            for line in view.lines():
                out.print(safe(line), soft_wrap=True)
            body = [[row["of"], row["name"], f"{row['slowdown']:.5f}"] for row in view.rows()]
            out.print(table("Slowdown by what keeps its own durations", ["of", "name", "slowdown"], body))


def _on_off(option: str, value: str | None) -> bool | None:
    if value is None:
        return None
    if value not in ("on", "off"):
        raise WirecostError(f"{option}: {one_of('value', value, ('on', 'off'))}")
    return value == "on"


def _show(view: WhatIfView, format: str) -> None:
    out = console(format)
    for line in view.lines():
        out.print(safe(line), soft_wrap=True)
    head, body = view.breakdown_table()
    out.print(table("Breakdown of an iteration, mean over ranks", head, body))
    if view.sweep is not None:
        points = [[p.name, f"{p.iteration_ms:.2f}", percent(p.comm_fraction)] for p in view.sweep.points]
        out.print(table("Iteration over bandwidth", ["bandwidth", "iteration ms", "comm fraction"], points))
    print_diagnostics(out, view.diagnostics) if format == "text" else None
