"""`wirecost run`: any training command, unchanged, over one network after another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from wirecost.cli.output import FORMAT, check_format, console, print_csv, table

if TYPE_CHECKING:
    from wirecost.breakdown import Share
    from wirecost.report.job_rows import JobRow
    from wirecost.report.turning_point import TurningPoint
    from wirecost.spec import Study
    from wirecost.study import Result
    from wirecost.study.allocation import Allocation, OnMachines

EMULATED = "emulated-1g,emulated-300m,emulated-60m"


def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="The training command, as it is started otherwise."),
    ],
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|NxM",
            help="Emulated hosts, or hosts x ranks on each: 2, 2x2; with a launcher machines. May be given "
            "several times.  [default: 2, or all machines]",
        ),
    ] = None,
    networks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME...",
            help="Networks (wirecost presets networks), or `native`: this machine, with a launcher the machines "
            f"of the job, as they are.  [default: {EMULATED}; with a launcher native]",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured iterations.")] = 20,
    warmup: Annotated[int, typer.Option(min=0, help="Iterations before the measured ones.")] = 5,
    profile: Annotated[
        int, typer.Option(min=0, max=100, help="Iterations under torch.profiler after the measured ones.")
    ] = 3,
    iteration_regex: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="A line of output that matches ends an iteration, instead of an optimizer's step.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job in tables.")] = "job",
    timeout: Annotated[str, typer.Option(help="Longest time over one network, as in '10 min'.")] = "10 min",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Keep the results here, as a study's.  [with a launcher: wirecost-runs/NAME]", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --out: run only what has no result there.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run again what failed or was skipped.")
    ] = False,
    launcher: LAUNCHER = "local",
    on: ON = None,
    remote: REMOTE = None,
    interface: Annotated[
        str | None,
        typer.Option(help="With a launcher: network interface between the machines.  [default: NCCL's or gloo's]"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="With slurm, kubernetes: cuda asks for a GPU for each rank.  [default: cpu]"),
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
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Run a training command unchanged over several networks.

    Prints what each of them costs it: exposed and hidden communication, wait and transfer, and the ratio.

    The command is started on emulated hosts of this machine with torchrun's environment variables. If it is
    torchrun or `accelerate launch` itself, its launcher gets the rendezvous. Each run ends after the last
    profiled iteration. With --launcher, the command is started on other machines.
    """
    from wirecost.errors import SpecError
    from wirecost.jobs.launched import launched_here
    from wirecost.study import Store
    from wirecost.study.job_study import job_study
    from wirecost.study.joined_study import earlier_hosts, joined_for_jobs
    from wirecost.study.runner import default_out

    format = check_format(format)
    if retry_failed and not resume:
        raise SpecError("--retry-failed goes with --resume: it runs failed experiments of an earlier run again")
    if resume and out is None and launcher == "local":
        raise SpecError("--resume goes with --out, which names the directory of the earlier run")
    launching = Launching(
        launcher, on, remote, partition, account, time_limit, constraint, tuple(sbatch or ()), None,
        container_image, volume_claim, namespace, pod_cpus, pod_memory, manifest,
    )  # fmt: skip
    _check(launching, interface, device)
    here = launcher == "local"
    networks = networks or (EMULATED if here else "native")
    if hosts is None and resume and here and out is not None:
        hosts = earlier_hosts(Store(out))
    study = job_study(
        command,
        name=name,
        networks=[n.strip() for n in networks.split(",")],
        hosts=hosts,
        iterations=steps,
        warmup=warmup,
        profile_iterations=profile,
        iteration_regex=iteration_regex,
        timeout=timeout,
        machines=None if here else _machines(launching),
        interface=interface,
        **({} if device is None else {"device": device}),
    )
    if launching.submits:
        out = out or default_out(study)
        study = joined_for_jobs(Store(out), study, launcher)
        if launching.submit(study, out, ["--retry-failed"] if retry_failed else []):
            return
        results = asked = Store(out).contents().results
    elif (launched := launched_here()) is not None:
        from wirecost.study.launched_job import run_launched

        results = asked = run_launched(study, launched, out)
        if not launched.is_first:
            raise typer.Exit(0)
    else:
        out = out if here else out or default_out(study)
        place = None if here else place_of(launcher, _shape(study, launcher), on, remote)
        results = _run_here(study, out, place, resume=resume, retry_failed=retry_failed)
        slugs = {experiment.slug for experiment in study.experiments()}
        asked = [result for result in results if result.directory.name in slugs]
    show(results, format)
    if out is not None and format == "text":
        typer.echo(f"\nResults: {out}\nTables and a page: wirecost report {quote(str(out))} --html report.html")
    from wirecost.study import Status

    if any(r.outcome.status is not Status.DONE for r in asked) or not asked:
        raise typer.Exit(1)


def _check(launching: Launching, interface: str | None, device: str | None) -> None:
    """Raises SpecError for options that don't go together."""
    from wirecost.errors import SpecError
    from wirecost.jobs.launched import launched_here

    launching.check()
    launcher = launching.launcher
    if interface is not None and launcher == "local":
        raise SpecError("--interface names the network between machines, and goes with another --launcher")
    if device is not None and not launching.submits:
        raise SpecError("--device goes with --launcher slurm or kubernetes, which ask for GPUs")
    if launcher != "local" and launched_here() is not None:
        raise SpecError(f"--launcher {launcher}: this process is one of several that a launcher started already")


def _run_here(
    study: Study, out: Path | None, place: Allocation | OnMachines | None, *, resume: bool, retry_failed: bool
) -> list[Result]:
    """Runs a command's study from this process."""
    from wirecost.cli.progress import StudyProgress
    from wirecost.study.job_study import run_job

    try:
        with StudyProgress() as progress:
            return run_job(study, out, resume=resume, retry_failed=retry_failed, progress=progress, place=place)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"Finished runs are kept in {out}; --resume goes on with the others.", err=True)
        raise


def _machines(launching: Launching) -> int:
    """Returns the number of machines that a launcher uses by default."""
    from wirecost.launch.machines import Machines

    if launching.launcher == "hosts" and launching.on is not None:
        return len(Machines.parse(launching.on, launching.remote).hosts)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    return int(nodes) if launching.launcher == "srun" and nodes.isdigit() and int(nodes) else 2


def _shape(study: Study, launcher: str) -> str | None:
    """Returns the shape of the runs, which an allocation of Slurm has; None for another launcher."""
    from wirecost.errors import SpecError
    from wirecost.study.allocation import Allocation

    if launcher != "srun":
        return None
    shapes = sorted({Allocation.of(experiment).name for experiment in study.job_experiments()})
    if len(shapes) > 1:
        raise SpecError(
            f"--launcher srun: runs one shape, not {', '.join(shapes)}; give one --hosts and --networks"
        )
    return shapes[0]


def show(results: Any, format: str) -> None:
    """Prints a run's table, and where another network would change it."""
    from wirecost.report.job_rows import as_dict, job_rows
    from wirecost.report.turning_point import turning_points

    rows = job_rows(results)
    points = turning_points(rows)
    if format == "json":
        data = {
            "schema_version": 1,
            "rows": [as_dict(row) for row in rows],
            "half_of_iteration": [vars(point) for point in points],
            "diagnostics": [
                {"network": r.experiment.network.name, **d.as_json()}
                for r in results
                if r.breakdown
                for d in r.breakdown.diagnostics
            ],
        }
        typer.echo(json.dumps(data, indent=1, allow_nan=False))
    elif format == "csv":
        print_csv([as_dict(row) for row in rows])
    else:
        _print(rows, points, results, format)


def _print(rows: list[JobRow], points: list[TurningPoint], results: Any, format: str) -> None:
    from rich.text import Text

    from wirecost.cli.output import print_diagnostics
    from wirecost.study import Status
    from wirecost.text import printable
    from wirecost.units import format_rate_bps

    out = console(format)
    measured = [row for row in rows if row.iteration_ns is not None]
    several = len({(row.workload, row.ranks) for row in measured}) > 1
    if measured:
        counts = sorted({row.iteration_ns.n for row in measured if row.iteration_ns})
        n = "/".join(map(str, counts))
        head = (
            *(("workload", "ranks") if several else ()),
            "network", "iteration", "exposed", "hidden", "transfer", "wait", "transport", "link use", "ratio",
        )  # fmt: skip
        body = [_cells(row, several=several) for row in measured]
        ranks = f"{measured[0].ranks} ranks, " if not several else ""
        title = (
            f"{ranks}median iteration of the slowest rank (quartiles; n = {n}), shares of an iteration of "
            "communication"
        )
        out.print(table(title, head, body))
    for row in rows:
        if row.status is not Status.DONE:
            line = f"{row.network}: {row.status}: {printable(row.reason or 'no reason known')}"
            out.print(Text(line, style="red"), soft_wrap=True)
        elif row.unknown is not None:
            out.print(Text(f"{row.network}: shares {printable(row.unknown)}", style="yellow"), soft_wrap=True)
    for point in points:
        who = f"{printable(point.workload)}, {point.ranks} ranks: " if several else ""
        low, high = (None if r is None else format_rate_bps(r, 3) for r in (point.low_bps, point.high_bps))
        if low and high:
            where = f"at a rate between {low} and {high}"
        elif high:
            where = f"at a rate below {high}; these networks give no lower bound"
        elif low:
            where = f"at a rate above {low}; these networks give no upper bound"
        else:
            where = "at an unknown rate"
        out.print(Text(f"{who}Exposed communication is half of the iteration {where}."), soft_wrap=True)
    if any(row.emulated for row in measured):
        out.print(
            Text("Networks are emulated on this machine; shares are of the profiled window."), soft_wrap=True
        )
    seen = {d for r in results if r.breakdown for d in r.breakdown.diagnostics}
    print_diagnostics(out, sorted(seen, key=lambda d: (d.code, d.message)))


def _cells(row: JobRow, *, several: bool) -> list[str]:
    from wirecost.units import format_rate_bps

    time, ratio = row.iteration_ns, row.ratio
    assert time is not None
    use = "unknown"
    if row.mean_use_bps is not None:
        share = f" ({row.mean_use_bps / row.rate_bps:.0%})" if row.rate_bps else ""
        use = f"{format_rate_bps(row.mean_use_bps, 3)}{share}"
    return [
        *((row.workload, str(row.ranks)) if several else ()),
        row.network,
        f"{_ms(time.median)} ms ({_ms(time.q1)}-{_ms(time.q3)})",
        *map(_share, (row.exposed, row.hidden, row.transfer, row.wait)),
        row.transport or "unknown",
        use,
        "1" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})",
    ]


def _ms(time_ns: float) -> str:
    """Returns a time in milliseconds with three digits, or without decimals."""
    return f"{time_ns * 1e-6:.3g}" if time_ns < 999.5e6 else f"{time_ns * 1e-6:.0f}"


def _share(share: Share | None) -> str:
    return "unknown" if share is None else share.text(0)
