"""`wirecost demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Where results go.  [default: wirecost-runs/NAME]", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A shorter demo: one workload and two networks, in a minute or two.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run it anew even if it was run here before.")] = False,
) -> None:
    """Train two sizes of GPT over three emulated networks.

    The result shows what a network costs. It needs only this machine.

    Takes about six minutes on two processor cores. A demo that was interrupted continues where it stopped.
    """
    from wirecost.cli.progress import StudyProgress
    from wirecost.report import read_report
    from wirecost.report.figures import write_figures
    from wirecost.report.page import write_page
    from wirecost.report.terminal import print_report
    from wirecost.study import Again, Status, Store, run_study
    from wirecost.study.loading import load_study
    from wirecost.study.runner import default_out

    study = load_study("demo-quick" if quick else "demo")
    folder = out or default_out(study)
    if again:
        store = Store(folder)
        with store.locked():
            store.sweep()
            for experiment in study.experiments():
                store.forget(experiment)
    with StudyProgress() as progress:
        results = run_study(study, folder, resume=True, again=Again(damaged=True), progress=progress)
    read = read_report(folder)
    print_report(read)
    write_figures(read, folder / "figures")
    page = write_page(read, folder / "report.html")
    typer.echo(f"\nFigures: {folder / 'figures'}\nPage:    {page.resolve().as_uri()}")
    if any(r.outcome.status is not Status.DONE for r in results):
        raise typer.Exit(1)
