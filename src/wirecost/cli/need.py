"""`wirecost need`: how much network (or batch) a comm fraction takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.job_options import WORKLOAD, Job, assumed_line, with_job_options
from wirecost.cli.output import FORMAT, check_format, console, percent, print_csv, safe, table

if TYPE_CHECKING:
    from rich.console import Console

    from wirecost.api.predictions import NeedView
    from wirecost.costmodel.setup import Setup
    from wirecost.prediction.need import Need


@with_job_options
def need(
    job: Job,
    workload: Annotated[str, WORKLOAD],
    fraction: Annotated[float, typer.Option("--fraction", help="Largest share of communication, like 0.2.")] = 0.2,
    what: Annotated[str, typer.Option("--of", help="bandwidth, micro-batch or accumulation.")] = "bandwidth",
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Find the bandwidth that keeps communication below a share.

    Or the micro-batch or accumulation (--of) at which the comm fraction falls to --fraction.

    Example: wirecost need llama-3-70b --cluster dgx-h100 --gpus 256 --data-parallel zero3 --fraction 0.1
    """
    import json
    from dataclasses import asdict

    from wirecost.api.predictions import NeedView
    from wirecost.errors import SpecError, one_of
    from wirecost.prediction import need as solver
    from wirecost.prediction.basis import basis_of

    format = check_format(format)
    solvers = {
        "bandwidth": solver.bandwidth,
        "micro-batch": solver.micro_batch,
        "accumulation": solver.accumulation,
    }
    if what not in solvers:
        raise SpecError(one_of("quantity", what, solvers))
    setup = job.setup(workload)
    view = NeedView(solver.with_ranges(setup, solvers[what](setup, fraction)), solver.fraction(setup))
    if format == "json":
        answer = view.need
        fits = answer.prediction.fits if answer.prediction else None
        row = {key: value for key, value in view.rows()[0].items() if key != "unit"}
        basis = [asdict(each) for each in basis_of(setup)]
        typer.echo(json.dumps({**row, "fits": fits, "assumed": job.assumed(setup), "basis": basis}))
    elif format == "csv":
        print_csv(view.rows())
    else:
        _show(view, setup, job.assumed(setup), format)
    if view.value is None:
        raise typer.Exit(1)


def _show(view: NeedView, setup: Setup, assumed: dict[str, str], format: str) -> None:
    from wirecost.prediction.basis import basis_line, basis_of
    from wirecost.prediction.need import is_on_one_node
    from wirecost.units import format_rate_bps

    answer, limit = view.need, percent(view.need.limit)
    title = f"{setup.workload.name} on {setup.gpus} GPUs of {setup.cluster.name} (predicted)"
    out = console(format)
    out.print(f"[bold]{safe(title)}[/bold]: comm fraction {percent(view.now)} now", soft_wrap=True)
    if answer.what == "bandwidth" and is_on_one_node(setup):
        sentence = f"The {setup.gpus} GPUs are in one node, which needs no network"
        if answer.value is None:
            sentence += f"; communication inside the node is {percent(view.now)}, above {limit}"
        out.print(f"{sentence}.", soft_wrap=True)
    elif answer.value is None:
        out.print(
            f"No {answer.what} brings it to {limit}: {percent(answer.floor)} stay however large it gets "
            "(communication inside nodes, latency).",
            soft_wrap=True,
        )
    elif answer.what == "bandwidth":
        rate_bps = setup.cluster.inter_node.rate * setup.cluster.nics_per_node
        out.print(
            f"For {limit} each node needs {format_rate_bps(answer.value, 3)} "
            f"({format_rate_bps(answer.value / setup.cluster.gpus_per_node, 3)} a GPU); it has "
            f"{format_rate_bps(rate_bps, 3)}.",
            soft_wrap=True,
        )
        if answer.interval:
            low, high = answer.interval.low, answer.interval.high
            upper = "no bound (it may be that no bandwidth suffices)" if high is None else format_rate_bps(high, 3)
            out.print(f"90 % interval: {format_rate_bps(low or 0, 3)} to {upper}.", soft_wrap=True)
        _show_stacks(out, answer)
    else:
        fits = "" if answer.prediction and answer.prediction.fits else ", which does not fit in memory"
        batch = answer.prediction.setup.global_batch if answer.prediction else 0
        what = answer.what.replace("_", "-")
        out.print(
            f"For {limit} the {what} must be {answer.value:.0f}, global batch {batch}{fits}.", soft_wrap=True
        )
    out.print(safe(basis_line(basis_of(setup))), soft_wrap=True)
    out.print(assumed_line(assumed), soft_wrap=True)
    if format != "text":
        row = view.rows()[0]
        head = ["of", "limit", "value", "unit", "comm fraction", "floor", "now"]
        shares = [percent(row[key]) for key in ("comm_fraction", "floor", "now")]
        value = "none" if row["value"] is None else f"{row['value']:.4g}"
        out.print(table(title, head, [[row["of"], limit, value, row["unit"], *shares]]))


def _show_stacks(out: Console, answer: Need) -> None:
    """Prints the range of the answers of other stacks, with the stacks at its ends."""
    from wirecost.units import format_rate_bps

    known = {name: value for name, value in (answer.over_stacks or {}).items() if value is not None}
    without = len(answer.over_stacks or {}) - len(known)
    if not known:
        return
    lowest, highest = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    beyond = f"; under {without} no bandwidth suffices" if without else ""
    out.print(
        f"Over {len(known) + without} fitted stacks: {format_rate_bps(known[lowest], 3)} ({safe(lowest)}) to "
        f"{format_rate_bps(known[highest], 3)} ({safe(highest)}){beyond}.",
        soft_wrap=True,
    )
