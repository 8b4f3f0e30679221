"""`wirecost bench`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Backend(StrEnum):
    GLOO = "gloo"
    NCCL = "nccl"


class Place(StrEnum):
    BOTH = "both"
    IN = "in"
    OUT = "out"


def bench(
    collectives: Annotated[
        list[str] | None,
        typer.Argument(
            help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send_recv, "
            "send_recv_bidirectional, barrier; several, or 'all'.  [default: all_reduce]",
            show_default=False,
        ),
    ] = None,
    *,
    smallest: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size: 8, 64K, 1M, 1 GiB.")] = "32M",
    largest: Annotated[
        str | None, typer.Option("-e", "--maxbytes", help="Largest size.  [default: the smallest]")
    ] = None,
    factor: Annotated[int | None, typer.Option("-f", "--stepfactor", help="Multiply sizes by.")] = None,
    step: Annotated[str | None, typer.Option("-i", "--stepbytes", help="Or add so much.")] = None,
    hosts: Annotated[int, typer.Option(help="Emulated hosts.")] = 1,
    ranks_per_host: Annotated[
        int | None, typer.Option(help="Ranks on each host.  [default: 1, or 2 on one host]")
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(help="A network that ships (emulated-1g, loopback, nvlink, ...) or a YAML file."),
    ] = None,
    groups: Annotated[
        str, typer.Option(help="Process groups at once: 2 (rings over all hosts), or ranks like 0,2:1,3.")
    ] = "1",
    backend: Annotated[
        Backend | None, typer.Option(help="[default: nccl with GPUs, else gloo]", show_default=False)
    ] = None,
    dtype: Annotated[
        str, typer.Option("-d", "--datatype", "--dtype", help="float, half, bfloat16, int32, ...")
    ] = "float",
    redop: Annotated[str, typer.Option("-o", "--op", help="sum, max, min.")] = "sum",
    iterations: Annotated[
        int | None,
        typer.Option("-n", "--iters", help="Messages in each of five rounds.  [default: what 0.25 s allow]"),
    ] = None,
    warmup: Annotated[int, typer.Option("-w", "--warmup_iters", help="Warm-up messages at each size.")] = 5,
    check: Annotated[int, typer.Option("-c", "--check", help="0: don't check results.")] = 1,
    place: Annotated[Place, typer.Option(help="Buffers: in place, out of place, both.")] = Place.BOTH,
    timeout: Annotated[str, typer.Option(help="How long a rank may take to come, or for one size.")] = "60 s",
    seed: Annotated[int, typer.Option(help="Of the random data.")] = 1,
    read: Annotated[
        list[Path] | None,
        typer.Option(help="Measure nothing: read results of nccl-tests (text, JSON) or OSU. Repeatable."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="With --read: ranks in the group, where the file doesn't tell.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write bus bandwidth over size with the fit, .png or .svg.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Write the fit into this cluster's YAML as its network efficiency.")
    ] = None,
    output_format: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.TABLE,
) -> None:
    """Measure what a network gives, per collective, size and group, with nccl-tests' options and columns."""
    from wirecost.cli._bench_output import check_outputs, read_and_print, run_and_print

    check_outputs(plot, cluster)
    as_json = output_format is Format.JSON
    if read:
        read_and_print(read, ranks, as_json=as_json, plot=plot, cluster=cluster)
        return
    from wirecost.collectives.options import request_from

    request = request_from(
        collectives=collectives or [],
        smallest=smallest,
        largest=largest,
        factor=factor,
        step=step,
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        fabric=fabric,
        groups=groups,
        backend=backend,
        dtype=dtype,
        redop=redop,
        iterations=iterations,
        warmup=warmup,
        check=bool(check),
        place=place,
        timeout=timeout,
        seed=seed,
    )
    if not run_and_print(request, as_json=as_json, plot=plot, cluster=cluster):
        raise typer.Exit(1)
