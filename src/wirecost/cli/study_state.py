"""`wirecost study status`, `check`, `logs` and `cancel`: commands on a study's results, while it runs or later."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.cli.output import FORMAT
from wirecost.errors import WirecostError
from wirecost.text import printable

if TYPE_CHECKING:
    from wirecost.study.state import ExperimentState, StudyState

RUNS = Path("wirecost-runs")
STORE = typer.Argument(help="Directory of a study's results.  [default: the newest in wirecost-runs]")
COLUMNS = ("state", "experiment", "iterations", "time", "left", "reason")
MOST_ROWS = 200
"""Rows of the table of `status`; of a larger study it shows what runs and what failed."""


def folder_of(given: Path | None) -> Path:
    """Returns the directory of results that a command is about.

    Raises:
        WirecostError: if none is given, and none is in `wirecost-runs`.
    """
    if given is not None:
        return given
    stores = [path.parent for path in RUNS.glob("*/study.yaml")]
    if not stores:
        raise WirecostError(f"no study's results are in {RUNS}; name their directory")
    return max(stores, key=lambda path: (path / "study.yaml").stat().st_mtime)


def status(
    store: Annotated[Path | None, STORE] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Show these states only: running, waiting, failed, ..."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every experiment of a large study.")] = False,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Show which experiments run, wait, are done or failed."""
    from wirecost.cli.output import check_format, print_csv
    from wirecost.errors import SpecError, one_of
    from wirecost.study.state import State, matching, read_state

    format = check_format(format)
    for name in state or ():
        if name not in list(State):
            raise SpecError(f"--state: {one_of('state', name, list(State))}")
    folder = folder_of(store)
    read = read_state(folder)
    shown = matching(read.experiments, [State(name) for name in state or ()])
    if format == "json":
        _print_json(folder, read, shown)
    elif format == "csv":
        print_csv([_row(each) for each in shown], _row(shown[0]) if shown else COLUMNS)
    else:
        _print_text(folder, read, shown, format, every=every or bool(state))


def _row(each: ExperimentState) -> dict[str, Any]:
    from wirecost.spec.job import plan_name, workload_name

    experiment = each.experiment
    return {
        "experiment": experiment.slug,
        "state": str(each.state),
        "workload": workload_name(experiment),
        "network": experiment.network.name,
        "plan": plan_name(experiment),
        "ranks": experiment.ranks,
        "global_batch": getattr(experiment, "global_batch", None),
        "iterations": each.iterations,
        "planned_iterations": each.planned_iterations,
        "seconds": each.seconds,
        "left_s": each.left_s,
        "reason": each.reason,
    }


def _print_json(folder: Path, read: StudyState, shown: list[ExperimentState]) -> None:
    import json
    from dataclasses import asdict

    from wirecost.study.slurm import queue_of
    from wirecost.study.state import State

    document = {
        "schema_version": 2,
        "study": read.name,
        "left_s": read.left_s,
        "counts": {str(state): read.count(state) for state in State},
        "jobs": [asdict(job) for job in queue_of(folder)],
        "runs": [run.model_dump() for run in read.runs],
        "experiments": [_row(each) for each in shown],
    }
    typer.echo(json.dumps(document, indent=1))


def _print_text(folder: Path, read: StudyState, shown: list[ExperimentState], format: str, *, every: bool) -> None:
    from wirecost.cli.output import console, table
    from wirecost.study.state import UNFINISHED, State
    from wirecost.units import format_duration_s

    out = console(format)
    counts = [f"{read.count(state)} {state}" for state in State if read.count(state)]
    left = f"; about {format_duration_s(read.left_s)} of work left" if read.count(*UNFINISHED) else ""
    out.print(f"{printable(read.name)}: {', '.join(counts)} of {len(read.experiments)}{left}", markup=False)
    queued = _print_queue(folder, out)
    for run in read.runs:
        where = f" in job {run.slurm_job} of Slurm" if run.slurm_job else f" in {run.job}" if run.job else ""
        out.print(f"run by process {run.pid} on {printable(run.host)}{printable(where)}", markup=False)
    if not read.runs and not queued and read.count(*UNFINISHED):
        out.print(f"nothing runs here now; this goes on: {_again(folder)}", markup=False, soft_wrap=True)
    rows = shown if every or len(shown) <= MOST_ROWS else _notable(shown)
    body = []
    for each in rows:
        done = "" if each.iterations is None else f"{each.iterations}/{each.planned_iterations}"
        took = "" if each.seconds is None else format_duration_s(each.seconds)
        reason = next(iter((each.reason or "").splitlines()), "")
        left = "" if each.left_s is None else format_duration_s(each.left_s)
        body.append((str(each.state), each.experiment.slug, done, took, left, reason))
    if body:
        out.print(table("", COLUMNS, body))
    if len(rows) < len(shown):
        out.print(f"{len(shown) - len(rows)} more: --all shows them, --state STATE a part", markup=False)


def _again(folder: Path) -> str:
    """Returns the command that runs what is not finished."""
    from wirecost.study.slurm import submitted_jobs

    place = quote(str(folder))
    how = "--launcher slurm" if submitted_jobs(folder) else "--resume"
    return f"wirecost study run {quote(str(folder / 'study.yaml'))} --out {place} {how}"


def _print_queue(folder: Path, out: Any) -> bool:
    """Prints the jobs of Slurm that wait or run. Returns whether there are any."""
    from wirecost.cli.output import table
    from wirecost.study.slurm import queue_of

    if jobs := queue_of(folder):
        body = [(job.job, job.state, job.reason, job.left) for job in jobs]
        out.print(table("Jobs of Slurm", ("job", "state", "nodes or reason", "time left"), body))
    return bool(jobs)


def _notable(shown: list[ExperimentState]) -> list[ExperimentState]:
    from wirecost.study.state import State

    quiet = (State.DONE, State.WAITING, State.SKIPPED)
    return [each for each in shown if each.state not in quiet][:MOST_ROWS]


def check(
    store: Annotated[Path | None, STORE] = None,
    upgrade: Annotated[
        bool,
        typer.Option("--upgrade", help="Record the SHA-256 of results of versions that didn't."),
    ] = False,
) -> None:
    """Check every file of a study's results against its recorded SHA-256."""
    from wirecost.study.store import Store

    folder = folder_of(store)
    contents = Store(folder).check()
    typer.echo(f"{folder}: {len(contents.results)} results are whole, {len(contents.damaged)} damaged")
    if upgrade:
        with Store(folder).locked():
            count = Store(folder).upgrade(contents.results)
        typer.echo(f"{count} of them had no record of their files and have one now")
    for damaged in contents.damaged:
        typer.echo(f"damaged: {printable(damaged.name)}: {printable(damaged.reason)}")
    if contents.study_problem:
        typer.echo(f"damaged: study.yaml: {printable(contents.study_problem)}")
    if contents.damaged or contents.study_problem:
        typer.echo("wirecost study run --resume --repair runs damaged experiments again", err=True)
        raise typer.Exit(1)


def logs(
    store: Annotated[Path | None, STORE] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="A part of the experiment's name that no other has.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Show this rank's log only.")] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, help="Last lines of each log.")] = 40,
) -> None:
    """Show what the processes of an experiment printed."""
    from wirecost.study.logs import logs_of

    for name, text in logs_of(folder_of(store), experiment, rank=rank, lines=lines):
        typer.echo(f"==> {printable(name)}")
        for line in text:
            typer.echo(printable(line))


def cancel(store: Annotated[Path | None, STORE] = None) -> None:
    """End the runs that work on a study; finished experiments are kept."""
    from wirecost.study.cancel import cancel_runs

    folder = folder_of(store)
    for line in cancel_runs(folder):
        typer.echo(printable(line))


def register(app: typer.Typer) -> None:
    """Adds these commands to `wirecost study`."""
    for command in (status, check, logs, cancel):
        app.command(command.__name__)(command)
