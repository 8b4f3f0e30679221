"""`wirecost plan`: which parallelism a model should be trained with on a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.job_options import WORKLOAD, Job, with_job_options
from wirecost.cli.output import FORMAT, check_format, print_csv

if TYPE_CHECKING:
    from wirecost.planner.answer import Answer, Present
    from wirecost.planner.measuring import Measuring
    from wirecost.planner.request import Request, Wishes
    from wirecost.study.allocation import Allocation, OnMachines

MEASURED_BY = ("local", "srun", "hosts")
"""Launchers that `--measure` waits for."""


@with_job_options
def plan(
    job: Job,
    workload: Annotated[str, WORKLOAD],
    constraint: Annotated[
        list[str] | None,
        typer.Option("--constraint", metavar="CONDITION|FILE", help="As 'tp<=8', or a YAML file of them."),
    ] = None,
    headroom: Annotated[
        str | None, typer.Option("--headroom", help="Share of the GPU's memory to leave free, as '10 %'.")
    ] = None,
    schedules: Annotated[
        str | None,
        typer.Option("--schedules", help="Pipeline schedules to try: 1f1b, interleaved, zb-h1, zb-h2, dualpipe."),
    ] = None,
    may_not_fit: Annotated[
        bool, typer.Option("--may-not-fit", help="Rank plans too that may not fit in memory.")
    ] = False,
    change_one: Annotated[
        bool, typer.Option("--change-one", help="Keep the plan of the other options, and change one choice.")
    ] = False,
    tokens: Annotated[str | None, typer.Option("--tokens", help="Tokens of the training run, as 300B.")] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", help="Longest time of the run, as '30 days'.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Largest price of the run in dollars, as 250k.")
    ] = None,
    price: Annotated[
        str | None, typer.Option("--price", help="Dollars for a GPU and hour, if the cluster has no price.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="Number of plans to list.")] = 10,
    variants: Annotated[
        bool, typer.Option("--variants", help="List every variant, not only the best of each set of degrees.")
    ] = False,
    explain: Annotated[
        tuple[str, str] | None,
        typer.Option("--explain", metavar="A B", help="Where two plans differ: numbers of the list, or labels."),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option("--emit", help="Print flags or a config: torchrun, megatron, torchtitan, deepspeed or nemo."),
    ] = None,
    choose: Annotated[
        str, typer.Option("--choose", metavar="PLAN", help="With --emit: a number of the list, or a label.")
    ] = "1",
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with all plans.")] = None,
    measure: Annotated[
        int | None,
        typer.Option("--measure", min=1, max=100, help="Run the best plans, until it is decided."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="With --measure: where results go.")] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command", help="With --measure: what trains a plan, as 'python train.py --tp {tp}'; not wirecost."
        ),
    ] = None,
    launcher: Annotated[
        str, typer.Option("--launcher", help="With --measure: local, srun (in an allocation) or hosts (--on).")
    ] = "local",
    on: Annotated[
        str | None, typer.Option("--on", help="Machines of --launcher hosts, separated by commas.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", help="Starts a command on a machine. By default 'ssh {host}'.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option("--interface", help="Network interface between machines of a launcher, as eth0.")
    ] = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Find the parallelism for a model on a cluster.

    Searches every legal combination of TP, PP, interleaving, DP, ZeRO, CP, EP, micro-batch and recomputation, and
    lists the fastest that fit. Options of a plan, as --tp 8, fix what they name.

    Example: wirecost plan llama-3-70b --cluster dgx-h100 --gpus 256 --global-batch 512 --constraint 'tp<=8'
    """
    from wirecost.errors import SpecError, one_of
    from wirecost.planner.request import Wishes

    format = check_format(format)
    if emit is not None:
        from wirecost.planner.emit import check_target

        check_target(emit)
    for name, value in (("--out", out), ("--command", command), ("--on", on), ("--interface", interface)):
        if value is not None and measure is None:
            raise SpecError(f"{name} is for --measure")
    if launcher == "slurm":
        raise SpecError("--launcher slurm: plans are measured inside an allocation: salloc ... --launcher srun")
    if launcher not in MEASURED_BY:
        raise SpecError(f"--launcher: {one_of('launcher', launcher, MEASURED_BY)}")
    if command is not None:
        from wirecost.planner.measuring import Measuring

        Measuring(command=command, target=emit)
    wishes = Wishes(
        tuple(constraint or ()), headroom, tokens, deadline, budget, price, schedules, ranks_uncertain=may_not_fit
    )
    request, present = _request(job, workload, wishes, change_one=change_one)
    if emit is not None:
        from wirecost.planner.emit import restricted

        request = restricted(request, emit, named=job.options.get("stack") is not None)
    answered = _searched(request, top=top, variants=variants, present=present)
    if html is not None:
        from wirecost.planner.page import write_page

        write_page(answered, request.assumed, html)
        typer.echo(f"wrote {html}", err=True)
    if measure is not None and answered.ranked:
        from wirecost.planner.measuring import Measuring

        place = _place(answered, launcher, on, remote)
        _measured(answered, measure, out, format, Measuring(place, command, emit, interface))
    elif emit is not None and answered.ranked:
        from wirecost.planner.emit import emitted

        typer.echo(emitted(answered, choose, emit), nl=False)
    else:
        _print(answered, request, explain, format)
    if not answered.ranked or answered.meets is False:
        raise typer.Exit(1)


def _request(job: Job, workload: str, wishes: Wishes, *, change_one: bool) -> tuple[Request, Present | None]:
    """Returns the request, and with `change_one` the plan that the options describe."""
    from wirecost.planner.request import present_plan, request_around, request_of

    if not change_one:
        return request_of(workload, job.options, wishes), None
    present = present_plan(workload, job.options)
    return request_around(workload, job.options, wishes, present), present


def _searched(request: Request, *, top: int, variants: bool, present: Present | None) -> Answer:
    """Returns the answer, with a progress bar on a terminal."""
    from wirecost.cli.progress import progress_bar
    from wirecost.planner.answer import answer

    with progress_bar() as bar:
        task = bar.add_task("plans", total=None, count="", left="")

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, count=f"{done:,} of {total:,}")

        return answer(request.question, request.limits, top=top, variants=variants, present=present, tell=tell)


def _print(answered: Answer, request: Request, explain: tuple[str, str] | None, format: str) -> None:
    from wirecost.cli.plan_details import show_explanation
    from wirecost.cli.plan_output import show
    from wirecost.planner.document import document, explanation_row, plan_row

    explanation = answered.explain(*explain) if explain and answered.ranked else None
    if format == "json":
        data = document(answered, request.assumed)
        if explanation is not None:
            data["explanation"] = explanation_row(explanation)
        typer.echo(json.dumps(data, allow_nan=False))
    elif format == "csv":
        rows = [plan_row(answered, number, ranked) for number, ranked in enumerate(answered.ranked, 1)]
        joined = [{**row, "never_fitted": "; ".join(row["never_fitted"] or [])} for row in rows]
        print_csv(joined)
    elif explanation is not None:
        show_explanation(explanation, format)
    else:
        show(answered, request.assumed, format)


def _place(answered: Answer, launcher: str, on: str | None, remote: str | None) -> Allocation | OnMachines | None:
    """Returns the machines on which plans are measured; None for this one."""
    from wirecost.cli._study_launchers import place_of
    from wirecost.planner.measuring import allocation_of

    question = answered.question
    if launcher == "srun" and on is None and remote is None:
        return allocation_of(question.gpus, question.cluster.gpus_per_node, os.environ)
    return place_of(launcher, None, on, remote)


def _measured(answered: Answer, count: int, out: Path | None, format: str, how: Measuring) -> None:
    from wirecost.cli.plan_details import show_measured
    from wirecost.cli.progress import StudyProgress
    from wirecost.planner.measure import measure

    with StudyProgress() as progress:
        result = measure(answered, count, out, progress, how)
    if format == "json":
        typer.echo(json.dumps(result.document(), allow_nan=False))
    elif format == "csv":
        print_csv(result.rows())
    else:
        show_measured(result, format)
    if result.best is None:
        raise typer.Exit(1)
