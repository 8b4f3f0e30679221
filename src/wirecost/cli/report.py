"""`wirecost report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMAT, check_format, console

if TYPE_CHECKING:
    from wirecost.report import StudyReport


def report(
    directory: Annotated[
        Path,
        typer.Argument(help="A study's results, or a file that `wirecost monitor` recorded.", show_default=False),
    ],
    format: Annotated[str, FORMAT] = "text",
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.", show_default=False)] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Write figures, PNG and SVG, to this folder. A recording's go beside it by default.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Show these experiments only; KEY is workload, network, plan, scaling or ranks. May be given "
            "several times.",
            metavar="KEY=VALUE",
            show_default=False,
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every table in full, where a large study is shown as an overview.")
    ] = False,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="What `wirecost predict --study` wrote: cells without a measurement show it, marked p.",
            show_default=False,
        ),
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", hidden=True)] = False,
) -> None:
    """Show the results of a study as tables, figures and a page."""
    from wirecost.errors import SpecError
    from wirecost.study import Store

    format = check_format(format)
    if directory.is_file():
        if predictions is not None or only or show_all:
            raise SpecError(f"{directory}: a recording has a figure only: no --predictions, --only, --all")
        _draw_recording(directory, format, html, figures or directory.parent, drawn=not no_figures)
        return
    if html is not None and not html.parent.is_dir():
        raise SpecError(f"--html {html}: there is no folder {html.parent}")
    for path in (html, figures):
        if path is not None:
            Store(directory).check_output(path)
    read = _read(directory, predictions, only or [])
    if format == "json":
        from wirecost.report.data import to_json

        typer.echo(to_json(read))
    elif format == "csv":
        from wirecost.report.data import to_csv

        typer.echo(to_csv(read), nl=False)
    else:
        from wirecost.report.terminal import print_report

        print_report(read, console(format), full=show_all)
    if html is not None:
        from wirecost.report.page import write_page

        typer.echo(f"wrote {write_page(read, html, full=show_all)}", err=True)
    if figures is not None and not no_figures:
        from wirecost.report.figures import write_figures

        for path in write_figures(read, figures):
            typer.echo(f"wrote {path}", err=True)


def _read(directory: Path, predictions: Path | None, only: list[str]) -> StudyReport:
    from wirecost.report import read_report
    from wirecost.report.selection import select

    predicted = None
    if predictions is not None:
        from wirecost.prediction.study import read_predictions

        predicted = read_predictions(predictions)
    return select(read_report(directory, predicted), only)


def _draw_recording(recording: Path, format: str, html: Path | None, folder: Path, *, drawn: bool) -> None:
    from wirecost.errors import SpecError
    from wirecost.report.over_time_figure import write_recording_figure

    if format != "text" or html is not None or not drawn:
        raise SpecError(f"{recording}: a recording has a figure only; --figures FOLDER says where it goes")
    for path in write_recording_figure(recording, folder):
        typer.echo(f"wrote {path}", err=True)
