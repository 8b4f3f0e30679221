"""`wirecost run`: any training command, unchanged, over one network after another."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.cli.output import FORMAT, check_format, console, print_csv, table

if TYPE_CHECKING:
    from wirecost.breakdown import Share
    from wirecost.report.job_rows import JobRow
    from wirecost.report.turning_point import TurningPoint


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
            help="Emulated hosts, or hosts x ranks on each: 2, 2x2. May be given several times.  [default: 2]",
        ),
    ] = None,
    networks: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Networks (wirecost presets networks), or `native`: this machine, or under torchrun or Slurm the "
            "job's hosts, as they are.",
        ),
    ] = "emulated-1g,emulated-300m,emulated-60m",
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
        Path | None, typer.Option(help="Keep the results here, as a study's.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --out: run only what has no result there.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run again what failed or was skipped.")
    ] = False,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Run a training command unchanged over several networks.

    Prints what each of them costs it: exposed and hidden communication, wait and transfer, and the ratio.

    The command is started on emulated hosts of this machine with torchrun's environment variables. If it is
    torchrun or `accelerate launch` itself, its launcher gets the rendezvous. Each run ends after the last
    profiled iteration.
    """
    from wirecost.cli.progress import StudyProgress
    from wirecost.errors import SpecError
    from wirecost.jobs.launched import launched_here
    from wirecost.study.job_study import job_study, run_job

    format = check_format(format)
    if retry_failed and not resume:
        raise SpecError("--retry-failed goes with --resume: it runs failed experiments of an earlier run again")
    if resume and out is None:
        raise SpecError("--resume goes with --out, which names the directory of the earlier run")
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
    )
    if (launched := launched_here()) is not None:
        from wirecost.study.launched_job import run_launched

        results = run_launched(study, launched, out)
        if not launched.is_first:
            raise typer.Exit(0)
    else:
        try:
            with StudyProgress() as progress:
                results = run_job(study, out, resume=resume, retry_failed=retry_failed, progress=progress)
        except KeyboardInterrupt:
            if out is not None:
                typer.echo(f"Finished runs are kept in {out}; --resume goes on with the others.", err=True)
            raise
    show(results, format)
    if out is not None and format == "text":
        typer.echo(f"\nResults: {out}\nTables and a page: wirecost report {quote(str(out))} --html report.html")
    from wirecost.study import Status

    if any(r.outcome.status is not Status.DONE for r in results) or not results:
        raise typer.Exit(1)


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
