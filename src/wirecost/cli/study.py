"""`wirecost study`: runs studies; its other commands are in `study_state.py`."""

from __future__ import annotations

import difflib
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from wirecost.cli._launchers import (
    ACCOUNT,
    CONSTRAINT,
    CONTAINER_IMAGE,
    LAUNCHER,
    MANIFEST,
    NAMESPACE,
    ON,
    PARTITION,
    POD_CPUS,
    POD_MEMORY,
    REMOTE,
    SBATCH,
    TIME_LIMIT,
    VOLUME_CLAIM,
    Launching,
    place_of,
)
from wirecost.cli.completion import presets_of
from wirecost.cli.study_state import register
from wirecost.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirecost.spec import Study
    from wirecost.study import Again, Result
    from wirecost.study.allocation import Allocation, OnMachines


class _Group(TyperGroup):
    """Says what is meant by `wirecost study FILE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = ctx.resilient_parsing or not args or args[0].startswith("-")
        if not known and self.get_command(ctx, args[0]) is None:
            name = printable(args[0])
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]}? A" if near else "a"
            ctx.fail(f"no command {name}; {hint} study is run by: wirecost study run {quote(name)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    help="Run a matrix of experiments and keep what came out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=_Group,
)


@app.callback()
def _group() -> None:
    pass


@app.command("run")
def run(
    study: Annotated[
        str,
        typer.Argument(
            help="A study's YAML file, or the name of one that ships: demo.", autocompletion=presets_of("study")
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Where results go.  [default: wirecost-runs/NAME]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run stopped.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run failed and skipped experiments again.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --resume: run experiments again whose results are damaged.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Profile iterations of every experiment after the measured ones and keep the traces, for "
            "`wirecost whatif` and its table in the report.",
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Time for this run, as in '20 min': what doesn't fit is left for --resume."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the study, print its experiments, run nothing.")
    ] = False,
    launcher: LAUNCHER = "local",
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE", help="With srun, hosts: hosts x ranks per host to run, as 2x8 or 2x2-emulated."
        ),
    ] = None,
    on: ON = None,
    remote: REMOTE = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="With slurm: jobs that share the experiments of a shape.  [default: 1]"),
    ] = None,
    partition: PARTITION = None,
    account: ACCOUNT = None,
    time_limit: TIME_LIMIT = None,
    constraint: CONSTRAINT = None,
    container_image: CONTAINER_IMAGE = None,
    volume_claim: VOLUME_CLAIM = None,
    namespace: NAMESPACE = None,
    pod_cpus: POD_CPUS = None,
    pod_memory: POD_MEMORY = None,
    manifest: MANIFEST = None,
    sbatch: SBATCH = None,
) -> None:
    """Run every experiment of a study, each in fresh processes over its own emulated network."""
    from wirecost.errors import SpecError
    from wirecost.study import Again
    from wirecost.study.loading import load_study, profiled
    from wirecost.study.runner import default_out

    if repair and not resume:
        raise SpecError("--repair goes with --resume: it runs damaged results of an earlier run again")
    launching = Launching(
        launcher, on, remote, partition, account, time_limit, constraint, tuple(sbatch or ()), parallel,
        container_image, volume_claim, namespace, pod_cpus, pod_memory, manifest,
    )  # fmt: skip
    launching.check()
    loaded = load_study(study)
    if profile:
        loaded = profiled(loaded)
    if dry_run:
        _dry_run(loaded)
        return
    folder = out or default_out(loaded)
    again = Again(retry_failed, repair)
    if launching.submits:
        if shape is not None:
            raise SpecError("--shape goes with --launcher srun or hosts: each shape gets a job of its own")
        wanted = (("--retry-failed", again.failed), ("--repair", again.damaged))
        if not launching.submit(loaded, folder, [option for option, is_wanted in wanted if is_wanted]):
            typer.echo(f"every experiment is finished: wirecost report {quote(str(folder))}")
    else:
        place = place_of(launcher, shape, on, remote)
        _run_here(loaded, folder, resume=resume, again=again, budget=budget, place=place)


def _run_here(
    study: Study,
    folder: Path,
    *,
    resume: bool,
    again: Again,
    budget: str | None,
    place: Allocation | OnMachines | None,
) -> None:
    """Runs a study from this process and prints its report."""
    from wirecost.cli.progress import StudyProgress
    from wirecost.errors import SpecError
    from wirecost.report import read_report
    from wirecost.report.terminal import print_report
    from wirecost.study import Status, Store, run_study
    from wirecost.study.allocation import OnMachines
    from wirecost.units import parse_time_s

    try:
        budget_s = None if budget is None else parse_time_s(budget)
    except ValueError as error:
        raise SpecError(f"--budget: {error}") from error
    try:
        with StudyProgress() as progress:
            results = run_study(
                study, folder, resume=resume, again=again, budget_s=budget_s, progress=progress, place=place
            )
    except KeyboardInterrupt:
        typer.echo(f"Finished experiments are kept in {folder}; --resume goes on with the others.", err=True)
        raise
    if (place.allocation if isinstance(place, OnMachines) else place) is not None:
        _tell_of_part(results)
        return
    planned = len(Store(folder).planned(study))
    if remaining := planned - len(results) - len(progress.left_out):
        typer.echo(
            f"{remaining} of {planned} experiments did not fit into {budget}: go on with --resume", err=True
        )
    if progress.left_out:
        message = f"{len(progress.left_out)} of {planned} left out as damaged: --resume --repair runs them again"
        typer.echo(message, err=True)
    if not results:
        raise typer.Exit(1 if progress.left_out else 0)
    print_report(read_report(folder, damaged=progress.left_out))
    typer.echo(f"\nResults: {folder}\nA page: wirecost report {quote(str(folder))} --html report.html")
    if skipped := sum(r.outcome.status is Status.SKIPPED for r in results):
        typer.echo(f"{skipped} skipped, for the reasons above: --resume --retry-failed tries them again", err=True)
    if progress.left_out or any(r.outcome.status is Status.FAILED for r in results):
        raise typer.Exit(1)


register(app)


def _tell_of_part(results: Sequence[Result]) -> None:
    from wirecost.study import Status

    failed = sum(result.outcome.status is Status.FAILED for result in results)
    typer.echo(f"{len(results)} experiments of this shape are finished, {failed} of them failed")
    if failed:
        raise typer.Exit(1)


def _dry_run(study: Study) -> None:
    """Prints the experiments, and on standard error how many they are, how long they take, and what can't run."""
    from wirecost.spec import MOST_TRIALS
    from wirecost.study.estimate import TimeLeft
    from wirecost.study.order import in_run_order
    from wirecost.study.runnable import limits_here
    from wirecost.units import format_duration_s

    limits = limits_here(study)
    experiments = in_run_order(study, study.experiments())
    for experiment in experiments:
        typer.echo(experiment.slug)
    searches = study.batch_searches()
    for search in searches:
        typer.echo(f"{search.at(1).common_slug.rpartition('_b')[0]}: at most {MOST_TRIALS} trials")
    count = f"{len(experiments)} experiment{'s' * (len(experiments) != 1)}"
    if searches:
        count += f" and {len(searches)} search{'es' * (len(searches) != 1)} for the largest batch"
    trials = (search.at(1) for search in searches for _ in range(MOST_TRIALS))
    duration = format_duration_s(TimeLeft().total([*experiments, *trials]))
    guess = f"roughly {duration} (a guess: nothing has been measured yet)"
    typer.echo(f"{count}, {guess}; nothing was started", err=True)
    for limit in limits:
        typer.echo(f"can't run here: {printable(limit)}", err=True)
