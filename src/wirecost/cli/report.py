"""`wirecost report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def report(
    directory: Annotated[
        Path,
        typer.Argument(help="A study's results, or a file that `wirecost monitor` recorded.", show_default=False),
    ],
    output_format: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.TABLE,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.", show_default=False)] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Where figures go, PNG and SVG.  [default: DIRECTORY/figures]", show_default=False),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="What `wirecost predict --study` wrote: cells without a measurement show it, marked p.",
            show_default=False,
        ),
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Write no figures.")] = False,
) -> None:
    """Show what a study says: communication fractions, speed-ups, checks, figures, a page."""
    from wirecost.errors import SpecError
    from wirecost.report import read_report
    from wirecost.report.data import to_csv, to_json
    from wirecost.report.terminal import print_report
    from wirecost.study.predicted import read_predictions

    if directory.is_file():
        if predictions is not None:
            raise SpecError(f"{directory}: a recording has nothing to predict; leave --predictions out")
        _draw_recording(directory, output_format, html, figures or directory.parent, drawn=not no_figures)
        return
    read = read_report(directory, read_predictions(predictions) if predictions is not None else None)
    if output_format is Format.JSON:
        typer.echo(to_json(read))
    elif output_format is Format.CSV:
        typer.echo(to_csv(read), nl=False)
    else:
        print_report(read)
    # The page first: it was asked for, while figures go beside results that others may own.
    if html is not None:
        from wirecost.report.page import write_page

        typer.echo(f"wrote {write_page(read, html)}", err=True)
    if not no_figures:
        from wirecost.report.figures import write_figures

        for path in write_figures(read, figures or directory / "figures"):
            typer.echo(f"wrote {path}", err=True)


def _draw_recording(
    recording: Path, output_format: Format, html: Path | None, folder: Path, *, drawn: bool
) -> None:
    from wirecost.errors import SpecError
    from wirecost.report.over_time_figure import write_recording_figure

    if output_format is not Format.TABLE or html is not None or not drawn:
        raise SpecError(f"{recording}: a recording has a figure only; --figures FOLDER says where it goes")
    for path in write_recording_figure(recording, folder):
        typer.echo(f"wrote {path}", err=True)
