"""`wirecost trace`: profiler traces to breakdowns."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMATS, check_format
from wirecost.errors import WirecostError

if TYPE_CHECKING:
    from wirecost.trace import TraceSet

_MOST_CELLS = 2_000_000  # of a rank's time line in a Perfetto file
# `trace.tables.NAMES`, which `--help` doesn't import.
_TABLES = (
    "ranks", "iterations", "collectives", "calls", "skew", "stragglers", "straggler_costs", "imbalance",
    "exposed", "causes", "comm_parts", "slowdowns", "clocks", "kernels", "losses", "diagnostics",
)  # fmt: skip


def trace(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, directories or globs: .json, .json.gz, .json.zst, Nsight Systems .sqlite.",
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", help="text, json, csv, markdown, latex or parquet.", metavar="FORMAT")
    ] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--out", help="Write there instead of printing; csv and parquet: a folder of all tables."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Print this table instead of the answer: {', '.join(_TABLES)}. May be repeated.", metavar="NAME"
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write one HTML file: the answer, the ranks, a time line to zoom and search."),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            help="Also write the traces with breakdown, waits and causes as further tracks, for ui.perfetto.dev "
            "(compressed where the name ends in .gz)."
        ),
    ] = None,
    breakdown: Annotated[
        Path | None, typer.Option(help="Also write the breakdown as JSON, for compare and reports.")
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            help="Where iterations come from: auto, launches, gpu, cpu (profiler steps), whole, name:REGEX."
        ),
    ] = "auto",
    step_time: Annotated[
        str | None,
        typer.Option(help="The job's own step time without the profiler ('238 ms'): says what the profiler adds."),
    ] = None,
    comm_pattern: Annotated[
        list[str] | None, typer.Option(help="Regular expression of event names that are communication too.")
    ] = None,
    rank: Annotated[
        list[str] | None,
        typer.Option(help="FILE=RANK for a file that doesn't tell its rank.", metavar="FILE=RANK"),
    ] = None,
    reduce: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write a small reduction of each trace there instead, to read those of all machines together. "
            "The tasks of a Slurm step share the traces of their node.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Worker processes; by default one for each core.", min=1)
    ] = None,
) -> None:
    """Analyse profiler traces: where the time of a slow job goes."""
    format_ = check_format(format_, (*FORMATS, "parquet"))
    if format_ == "parquet" and output is None:
        raise WirecostError("parquet is binary: say where with --out FOLDER")
    names = table or []
    if names:
        from wirecost.trace.tables import table_name

        names = [table_name(name) for name in names]
        if format_ == "csv" and len(names) > 1:
            raise WirecostError("csv prints one table at a time: name one --table, or a folder with --out")
    if reduce is not None:
        if html or perfetto or breakdown or output or names or step_time:
            raise WirecostError("--reduce writes reductions alone; the other outputs are made from all of them")
        _reduce(paths, reduce, window, (comm_pattern or (), rank or (), jobs))
        return
    from wirecost.trace import read
    from wirecost.trace.outputs import write_text

    step_time_ns = _step_time_ns(step_time)
    with _progress() as advance:
        traces = read(
            paths, window=window, comm_patterns=comm_pattern or (), ranks=rank or (), jobs=jobs,
            timeline=_MOST_CELLS if perfetto is not None else html is not None, step_time_ns=step_time_ns,
            progress=advance,
        )  # fmt: skip
    # Files are written first, because the reader of the output may stop (`| head`).
    if html is not None:
        from wirecost.trace.html import write_html

        write_html(traces, html)
        typer.echo(f"wrote {html}", err=True)
    if perfetto is not None:
        from wirecost.trace.perfetto import write_perfetto

        write_perfetto(traces, perfetto)
        typer.echo(f"wrote {perfetto}", err=True)
    if breakdown is not None:
        write_text([t.file for t in traces.traces], breakdown, traces.breakdown.model_dump_json(indent=1))
        typer.echo(f"wrote {breakdown}", err=True)
    _print(traces, format_, output, names)


def _reduce(
    paths: list[str], folder: Path, window: str, more: tuple[Sequence[str], Sequence[str], int | None]
) -> None:
    """Writes reductions and prints their paths. `more`: patterns of communication, ranks of files, workers."""
    from wirecost.trace.classify import Classifier
    from wirecost.trace.read import find_files
    from wirecost.trace.reduce import reduce_traces
    from wirecost.trace.windows import check_choice

    comm_patterns, ranks, jobs = more
    check_choice(window)
    Classifier(tuple(comm_patterns))
    files = find_files(paths)[_share_of_step()]
    total, done = sum(f.stat().st_size for f in files), 0
    with _progress() as advance:

        def read(count: int) -> None:
            nonlocal done
            done += count
            if advance is not None:
                advance(min(done, total), total)

        written = reduce_traces(
            files, folder, window=window, comm_patterns=comm_patterns, ranks=ranks, jobs=jobs, progress=read
        )
    for path in written:
        typer.echo(f"wrote {path}")


def _share_of_step() -> slice:
    """Returns which of the files this process reduces: all, or as a task of a Slurm step a share of them. The
    tasks of a node share the files that they see; what other nodes see isn't known.
    """
    from wirecost.launch.world import slurm_world

    world = slurm_world(os.environ)
    if world is None or world.local_size <= 1:
        return slice(None)
    return slice(world.local_rank, None, world.local_size)


def _step_time_ns(text: str | None) -> int | None:
    from wirecost.units import parse_time_s

    if text is None:
        return None
    try:
        step_time_ns = round(parse_time_s(text) * 1e9)
    except ValueError as error:
        raise WirecostError(f"--step-time: {error}") from error
    if step_time_ns <= 0:
        raise WirecostError(f"--step-time: a step takes longer than '{text}'")
    return step_time_ns


def _print(traces: TraceSet, format_: str, output: Path | None, names: list[str]) -> None:
    if format_ == "json":
        from wirecost.trace.outputs import write_text
        from wirecost.trace.tables import rows_of

        value = {name: rows_of(traces, name)[1] for name in names} if names else traces.to_dict()
        text = json.dumps(value, indent=1, allow_nan=False)
        if output is None:
            typer.echo(text)
        else:
            write_text([t.file for t in traces.traces], output, text + "\n")
    elif format_ in ("csv", "parquet") and output is not None:
        from wirecost.trace.tables import write_tables

        for path in write_tables(traces, output, format_):
            typer.echo(f"wrote {path}", err=True)
    elif format_ == "csv":
        from wirecost.trace.tables import to_csv

        typer.echo(to_csv(traces, names[0] if names else "iterations"), nl=False)
    elif output is None:
        from wirecost.cli.trace_view import show, show_tables

        if names:
            show_tables(traces, names, format_)
        else:
            show(traces, format_)
    else:
        raise WirecostError("--out takes --format json, csv or parquet")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Shows a progress bar with the time left on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("reading"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("reading", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
