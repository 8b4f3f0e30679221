"""A study's report on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from wirecost.diagnostics import lines_of
from wirecost.report import terminal_grids
from wirecost.report import terminal_tables as tables
from wirecost.report.cells import DISTURBED
from wirecost.report.compression import compressions
from wirecost.report.largest_batch import largest_batches
from wirecost.report.memory import peak_rows
from wirecost.report.profiled import profiled
from wirecost.report.study_report import StudyReport
from wirecost.report.terminal_overview import MOST_ROWS, print_overview
from wirecost.text import printable


def print_report(report: StudyReport, console: Console | None = None, *, full: bool = False) -> None:
    """Prints every table of a study. A large study is printed as an overview, unless `full` is set."""
    console = console or Console(highlight=False)
    short = report.is_large and not full
    most = MOST_ROWS if short else None
    if short:
        print_overview(report, console)
        _print_marks(report, console)
    else:
        _print_iterations(report, console)
    _print_links(report, console, most)
    if report.speed_ups():
        console.print()
        console.print(tables.speed_up_shares(report, most) if short else tables.speed_ups(report))
    if report.expectations():
        console.print()
        console.print(tables.expectations(report, most))
    if compressions(report):
        console.print()
        console.print(tables.gradient_traffic(report, most))
    if profiled(report):
        console.print()
        console.print(tables.profiled_windows(report, most))
        for reason in list(dict.fromkeys(p.profile.reason for p in profiled(report) if p.profile.reason))[:most]:
            console.print(Text(f"Profiled window {printable(reason)}", style="yellow"), soft_wrap=True)
    _print_what_ifs(report, console, most)
    if largest_batches(report):
        console.print()
        console.print(tables.largest_batch(report, most))
    if peak_rows(report):
        console.print()
        console.print(tables.peak_memory(report, most))
    _print_diagnostics(report, console, most)
    if short:
        console.print()
        if predicted := sum(c.predicted_fraction is not None for c in report.cells):
            console.print(Text(f"{predicted} experiments are predicted, not measured, and left out above"))
        console.print(
            Text(
                f"{len(report.cells)} experiments, so this is an overview: --only network=NAME (or workload, "
                "plan, scaling, ranks) shows a part, --all every table in full, --format csv a row for each"
            ),
            soft_wrap=True,
        )


def _print_what_ifs(report: StudyReport, console: Console, most: int | None) -> None:
    """Prints the answers from other experiments' traces, and why some are unknown."""
    if not report.what_ifs:
        return
    console.print()
    console.print(tables.what_ifs(report, most))
    for reason in list(dict.fromkeys(w.unknown for w in report.what_ifs if w.unknown))[:most]:
        console.print(Text(f"What-if answers unknown: {printable(reason)}", style="yellow"), soft_wrap=True)


def _print_iterations(report: StudyReport, console: Console) -> None:
    for plan in report.plans:
        for table in terminal_grids.fractions(report, plan, console.width):
            console.print(table)
        console.print()
    for table in terminal_grids.iteration_times(report, console.width):
        console.print(table)
    _print_marks(report, console)
    console.print()


def _print_marks(report: StudyReport, console: Console) -> None:
    """Explains the mark of disturbed experiments, if any is disturbed."""
    if report.disturbed:
        disturbed = sum(1 for cell in report.cells if cell.disturbed)
        text = f"{DISTURBED} disturbed: {disturbed} of {len(report.cells)} ({', '.join(report.disturbed)})"
        console.print(Text(text, style="yellow"), soft_wrap=True)


def _print_links(report: StudyReport, console: Console, most: int | None) -> None:
    console.print(tables.links(report, most))
    for link in report.links()[:most]:
        if link.use is not None:
            console.print(
                Text(f"Link use during iterations, {report.network_label(link.network)}: {link.use}"),
                soft_wrap=True,
            )
    if report.benchmarks:
        console.print()
        console.print(tables.benchmarks(report, most))


def _print_diagnostics(report: StudyReport, console: Console, most: int | None) -> None:
    """Prints the experiments that didn't finish, and the diagnostics of those that did."""
    unfinished, diagnostics = report.unfinished(), report.diagnostics()
    for row in unfinished[:most]:
        text = Text(f"{row.status}: {row.what}: {printable(row.reason)}", style="red")
        console.print(text, soft_wrap=True)
    if left_out := len(unfinished[most:] if most is not None else ()):
        console.print(Text(f"and {left_out} more reasons why experiments have no result", style="red"))
    for reported in diagnostics[:most]:
        first, *remedy = lines_of(reported.diagnostic)
        experiments = f" ({reported.experiments} experiments)" if reported.experiments > 1 else ""
        console.print(Text(f"{first}{experiments}", style="yellow"), soft_wrap=True)
        for line in remedy:
            console.print(Text(line), soft_wrap=True)
    if left_out := len(diagnostics[most:] if most is not None else ()):
        console.print(Text(f"and {left_out} more diagnostics", style="yellow"))
