"""`wirecost bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirecost.cli.completion import presets_of
from wirecost.cli.output import FORMAT, check_format


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
    hosts: Annotated[
        int | None,
        typer.Option(help="Emulated hosts.  [default: 2 with an emulated network, else 1]", show_default=False),
    ] = None,
    ranks_per_host: Annotated[
        int | None, typer.Option(help="Ranks on each host.  [default: 1, or 2 on one host]")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="A network that ships (emulated-1g, loopback, nvlink, ...) or a YAML file.",
            autocompletion=presets_of("network"),
        ),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="A study file: --network is then the name of one of its networks.")
    ] = None,
    fabric: Annotated[str | None, typer.Option(hidden=True)] = None,
    groups: Annotated[
        str, typer.Option(help="Process groups at once: 2 (rings over all hosts), or ranks like 0,2:1,3.")
    ] = "1",
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="gloo|nccl|mpi",
            help="mpi: under mpirun.  [default: nccl with GPUs, else gloo]",
            show_default=False,
        ),
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
    place: Annotated[
        str, typer.Option(metavar="both|in|out", help="Buffers: in place, out of place, both.")
    ] = "both",
    graph: Annotated[
        int, typer.Option("-G", "--cudagraph", help="1: a round's messages in one CUDA graph (NCCL).")
    ] = 0,
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
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="Hold bandwidths against the links of this cluster: a preset or a YAML file.  [default: what the "
            "machine reports, or the GPU's name tells]",
            show_default=False,
        ),
    ] = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Measure collectives over a network, as nccl-tests does.

    Options and columns are those of nccl-tests.

    Under torchrun, srun or mpirun it is one of the ranks that those started.
    """
    import os

    from wirecost.cli._bench_output import check_outputs, run_and_print
    from wirecost.collectives.launcher import find_world
    from wirecost.errors import WirecostError, deprecated

    check_outputs(plot, cluster)
    if fabric is not None:
        deprecated("--fabric", "--network")
        network = network or fabric
    format = check_format(format)
    if read:
        from wirecost.cli._bench_read import read_and_print

        right = read_and_print(read, ranks, format=format, plot=plot, cluster=cluster, hardware=hardware)
        if not right:
            raise typer.Exit(1)
        return
    from wirecost.collectives.joined import RankError
    from wirecost.collectives.options import BenchOptions, request_from

    world = find_world(backend, os.environ)
    try:
        request = request_from(
            BenchOptions(
                collectives=collectives or [],
                smallest=smallest,
                largest=largest,
                factor=factor,
                step=step,
                hosts=hosts,
                ranks_per_host=ranks_per_host,
                network=network,
                study=study,
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
                graph=bool(graph),
                world=world,
            )
        )
        right = run_and_print(request, world, format=format, plot=plot, cluster=cluster, hardware=hardware)
    except WirecostError as error:
        # If all ranks refuse the request, only one of them prints the error.
        if world is None or world.rank == 0 or isinstance(error, RankError):
            raise
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        if world is None or world.rank == 0:
            raise
        raise typer.Exit(1) from None
    if not right:
        raise typer.Exit(1)
