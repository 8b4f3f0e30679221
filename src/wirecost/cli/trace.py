"""`wirecost trace`: profiler traces to breakdowns."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.errors import WirecostError, one_of

if TYPE_CHECKING:
    from wirecost.trace import TraceSet

_FORMATS = ("table", "json", "csv", "parquet")


def trace(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, directories or globs: .json, .json.gz, .json.zst, Nsight Systems .sqlite.",
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", "-f", help="table, json, csv or parquet.", metavar="FORMAT")
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write there instead of printing; csv and parquet: a folder of all tables."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="Which table csv prints: ranks, iterations, collectives, calls, skew, ...")
    ] = "iterations",
    html: Annotated[Path | None, typer.Option(help="Also write a time line to zoom in, as one HTML file.")] = None,
    breakdown: Annotated[
        Path | None, typer.Option(help="Also write the breakdown as JSON, for compare and reports.")
    ] = None,
    window: Annotated[
        str, typer.Option(help="Where iterations come from: auto, gpu, cpu (profiler steps), whole, name:REGEX.")
    ] = "auto",
    comm_pattern: Annotated[
        list[str] | None, typer.Option(help="Regular expression of event names that are communication too.")
    ] = None,
    rank: Annotated[
        list[str] | None,
        typer.Option(help="FILE=RANK for a file that doesn't tell its rank.", metavar="FILE=RANK"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Worker processes; by default one for each core.", min=1)
    ] = None,
) -> None:
    """Where a slow job's time goes: exact breakdowns from profiler traces of one or many ranks."""
    if format_ not in _FORMATS:
        raise WirecostError(one_of("format", format_, _FORMATS))
    if format_ == "parquet" and output is None:
        raise WirecostError("parquet is binary: say where with --output FOLDER")
    from wirecost.trace import read

    with _progress() as advance:
        traces = read(
            paths, window=window, comm_patterns=comm_pattern or (), ranks=rank or (), jobs=jobs,
            timeline=html is not None, progress=advance,
        )  # fmt: skip
    _print(traces, format_, output, table)
    if html is not None:
        from wirecost.trace.html import write_html

        write_html(traces, html)
        typer.echo(f"wrote {html}", err=True)
    if breakdown is not None:
        _write(breakdown, traces.breakdown.model_dump_json(indent=1))
        typer.echo(f"wrote {breakdown}", err=True)


def _print(traces: TraceSet, format_: str, output: Path | None, table: str) -> None:
    if format_ == "json":
        text = json.dumps(traces.to_dict(), indent=1, allow_nan=False)
        if output is None:
            typer.echo(text)
        else:
            _write(output, text + "\n")
    elif format_ in ("csv", "parquet") and output is not None:
        from wirecost.trace.tables import write_tables

        for path in write_tables(traces, output, format_):
            typer.echo(f"wrote {path}", err=True)
    elif format_ == "csv":
        from wirecost.csv_text import frame_to_csv

        typer.echo(frame_to_csv(traces.table(table)), nl=False)
    elif output is None:
        from wirecost.cli.trace_view import show

        show(traces)
    else:
        raise WirecostError("--output takes --format json, csv or parquet")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WirecostError(f"{path}: can't be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr with the time left, only on a terminal."""
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
