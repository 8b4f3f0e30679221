"""`wirecost study`: runs studies; its other commands are in `study_state.py`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from wirecost.cli._study_launchers import place_of, submit_to_slurm, write_for_kubernetes
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
            ctx.fail(f"no command {name}; a study is run by: wirecost study run {quote(name)}")
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
    launcher: Annotated[
        str,
        typer.Option(
            help="local: this machine. slurm: submit jobs. srun: in a job's allocation. hosts: torchrun on --on. "
            "kubernetes: write manifests."
        ),
    ] = "local",
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE", help="With srun, hosts: hosts x ranks per host to run, as 2x8 or 2x2-emulated."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="HOST,HOST...", help="With hosts: the machines, as node1,node2 or node1=192.0.2.1,..."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(help="With hosts: the command that runs another one on {host}.  [default: ssh {host}]"),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, help="With slurm: jobs that share the experiments of a shape.")
    ] = 1,
    partition: Annotated[str | None, typer.Option(help="With slurm: partition of the jobs.")] = None,
    account: Annotated[str | None, typer.Option(help="With slurm: account of the jobs.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="With slurm: time limit of a job, as 2:00:00.")] = None,
    constraint: Annotated[str | None, typer.Option(help="With slurm: required features of the nodes.")] = None,
    container_image: Annotated[
        str | None, typer.Option(help="With slurm (srun of the pyxis plugin) or kubernetes: image of the ranks.")
    ] = None,
    volume_claim: Annotated[
        str | None, typer.Option(help="With kubernetes: PersistentVolumeClaim for the results.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="With kubernetes: namespace of the jobs.")] = None,
    pod_cpus: Annotated[str | None, typer.Option(help="With kubernetes: processor cores of a pod.")] = None,
    pod_memory: Annotated[str | None, typer.Option(help="With kubernetes: memory of a pod, as 64Gi.")] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="With slurm: another option of sbatch.")
    ] = None,
) -> None:
    """Run every experiment of a study, each in fresh processes over its own emulated network."""
    from wirecost.errors import SpecError
    from wirecost.study import Again
    from wirecost.study.loading import load_study, profiled
    from wirecost.study.runner import default_out
    from wirecost.study.slurm import SlurmOptions

    if repair and not resume:
        raise SpecError("--repair goes with --resume: it runs damaged results of an earlier run again")
    loaded = load_study(study)
    if profile:
        loaded = profiled(loaded)
    if dry_run:
        _dry_run(loaded)
        return
    folder = out or default_out(loaded)
    again = Again(retry_failed, repair)
    if launcher == "slurm":
        more = tuple(sbatch or ())
        options = SlurmOptions(partition, account, time_limit, constraint, container_image, parallel, more)
        submit_to_slurm(loaded, folder, options, again)
    elif launcher == "kubernetes":
        write_for_kubernetes(loaded, folder, container_image, volume_claim, (namespace, pod_cpus, pod_memory))
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
