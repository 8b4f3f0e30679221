"""Prints predictions on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wirecost.cli.output import console, percent, print_diagnostics, safe, table
from wirecost.units import format_ns, format_size_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from wirecost.prediction.ranges import Range
    from wirecost.whatif.validation import ReplayValidation


def seconds(value: float) -> str:
    return format_ns(value * 1e9)


def show_prediction(result: Any, largest: int | None, shares: Range, format: str = "text") -> None:
    """Prints one prediction: headline, parts of the time, memory, diagnostics."""
    from wirecost.prediction.predict import iteration_parts, memory_parts

    out = console(format)
    setup, times, memory = result.setup, result.times, result.memory
    total = float(times.total_s)
    interval = result.breakdown.interval
    plan = setup.plan
    out.print(
        f"[bold]{safe(result.breakdown.title)}[/bold] (predicted, {plan.data_parallel}, {plan.precision}, "
        f"stack {safe(setup.stack.name)})",
        soft_wrap=True,
    )
    out.print(
        f"  {setup.gpus} GPUs = tensor {plan.tensor_parallel} x pipeline {plan.pipeline_parallel} x context "
        f"{plan.context_parallel} x data {setup.data_parallel}; micro-batch {setup.micro_batch} x "
        f"{setup.accumulation} "
        f"accumulated, global batch {setup.global_batch}",
        soft_wrap=True,
    )
    out.print()
    out.print(
        f"  iteration      [bold]{seconds(total)}[/bold]   ({interval.level:.0%} interval "
        f"{seconds(interval.low_ns / 1e9)} to {seconds(interval.high_ns / 1e9)})"
    )
    out.print(
        f"  comm fraction  [bold]{percent(float(times.comm_fraction))}[/bold]   ({interval.level:.0%} interval "
        f"{percent(shares.low)} to {percent(shares.high)})"
    )
    out.print(
        f"  throughput     {result.tokens_per_s:,.0f} tokens/s, {result.tokens_per_s / setup.gpus:,.0f} a GPU   "
        f"({interval.level:.0%} interval {' to '.join(f'{rate:,.0f}' for rate in result.tokens_per_s_range)})"
    )
    out.print(
        f"  MFU            {percent(result.mfu)}   ({interval.level:.0%} interval "
        f"{' to '.join(percent(mfu) for mfu in result.mfu_range)})"
    )
    price = setup.cluster.dollars_per_gpu_hour
    if price:
        out.print(
            f"  cost           ${price * setup.gpus / 3600 / result.tokens_per_s * 1e9:,.2f} for a billion tokens"
        )
    fits = result.fit if result.fits else f"[bold red]{result.fit}[/bold red]"
    most = f"largest micro-batch {largest}" if largest else "no micro-batch fits"
    out.print(
        f"  memory         {format_size_bytes(float(memory.least))} to "
        f"{format_size_bytes(float(memory.total))} of {format_size_bytes(result.machine.memory_bytes)}: "
        f"{fits} ({most})"
    )
    out.print()
    body = [[name, seconds(spent_s), percent(spent_s / total)] for name, spent_s in iteration_parts(result)]
    body.append(["total", seconds(total), percent(1.0)])
    if float(times.hidden_comm_s) > 1e-9:
        body.append(["communication under compute", seconds(float(times.hidden_comm_s)), "hidden"])
    out.print(table("One iteration of the slowest rank", ["part", "time", "share"], body))
    body = [[name, format_size_bytes(size)] for name, size in memory_parts(result)]
    out.print(table("Memory of the fullest rank", ["part", "size"], body))
    print_diagnostics(out, result.breakdown.diagnostics)


def show_sweep(points: Sequence[Any], axis: str, format: str = "text") -> None:
    """Prints a sweep as one table, with the global batch if it differs between the rows."""
    head = [
        axis.replace("_", " "),
        "global batch",
        "iteration",
        "90 % interval",
        "comm fraction",
        "tokens/s",
        "MFU",
    ]
    body = []
    for point in points:
        if point.prediction is None:
            body.append([point.label, *["-"] * (len(head) - 1), point.refused])
            continue
        p = point.prediction
        interval = p.breakdown.interval
        total = float(p.times.total_s)
        codes = [] if p.fits else ["may not fit" if p.may_fit else "out of memory"]
        codes += [d.code for d in p.breakdown.diagnostics if d.code == "extrapolated"][:1]
        body.append(
            [
                point.label,
                str(p.setup.global_batch),
                seconds(total),
                f"{seconds(interval.low_ns / 1e9)} to {seconds(interval.high_ns / 1e9)}",
                percent(p.comm_fraction),
                f"{p.tokens_per_s:,.0f}",
                percent(p.mfu),
                ", ".join(codes),
            ]
        )
    head.append("diagnostics")
    batches = {p.prediction.setup.global_batch for p in points if p.prediction}
    if len(batches) == 1 or axis == "global_batch":
        del head[1]
        body = [[line[0], *line[2:]] for line in body]
    console(format).print(table("Predicted", head, body))


def show_study(name: str, cells: Sequence[Any], format: str = "text") -> None:
    """Prints a predicted study as one table."""
    body = []
    for cell in cells:
        e = cell.experiment
        head = [e.workload.name, e.network.name, e.plan.name, str(e.scaling), str(e.ranks), str(e.global_batch)]
        if cell.prediction is None:
            body.append([*head, "-", "-", "-", cell.refused])
            continue
        p = cell.prediction
        interval, total = p.breakdown.interval, float(p.times.total_s)
        codes = ", ".join(dict.fromkeys(d.code for d in p.breakdown.diagnostics))
        bounds = f"{seconds(interval.low_ns / 1e9)} to {seconds(interval.high_ns / 1e9)}"
        fraction = percent(float(p.times.comm_fraction))
        body.append([*head, seconds(total), bounds, fraction, codes])
    columns = ["workload", "network", "plan", "scaling", "ranks", "batch"]
    columns += ["iteration", "90 % interval", "comm fraction", "diagnostics"]
    console(format).print(table(f"{name}, predicted", columns, body))


MOST_NAMED = 3
"""Most named cells that are left out for one reason; the JSON has all."""


def show_study_validation(validation: Any, format: str = "text") -> None:
    """Prints a study's predictions beside its measurements: cells, errors, and the order of the strategies."""
    out = console(format)
    body = [
        [
            c.workload,
            c.network,
            c.plan,
            f"{c.scaling} <{c.ranks}, {c.global_batch}>",
            seconds(c.measured_s),
            seconds(c.predicted_s),
            percent(c.error, sign=True),
            {True: "yes", False: "no", None: "-"}[c.in_interval],
            percent(c.measured_fraction),
            percent(c.predicted_fraction),
        ]
        for c in validation.cells
    ]
    head = ["workload", "network", "plan", "scale", "measured", "predicted", "error", "in 90 %"]
    out.print(table("Measured and predicted iteration", [*head, "comm measured", "comm predicted"], body))
    lines = [_errors_line("all", validation.summary())]
    for key in ("network", "plan", "workload"):
        lines += [_errors_line(name, errors) for name, errors in validation.by(key).items()]
    columns = ["", "cells", "mean |error| of time", "bias", "worst", "mean |error| of comm fraction", "in 90 %"]
    out.print(table("Errors", columns, lines))
    if validation.orders:
        body = [
            [
                o.workload,
                o.network,
                f"{o.scaling} <{o.ranks}, {o.global_batch}>",
                " < ".join(o.measured),
                "".join(f" {'=' if p in o.level else '<'} {p}" for p in o.predicted)[3:],
                ("right" if not o.wrong_pairs else "WRONG") if o.pairs else "too close to tell",
            ]
            for o in validation.orders
        ]
        columns = ["workload", "network", "scale", "measured order", "predicted order", ""]
        out.print(table("Strategies from the fastest to the slowest", columns, body))
        right, pairs = validation.pairs_right
        out.print(f"  {right} of {pairs} pairs of strategies that measurably differ are in the right order")
    _show_left_out(out, validation.left_out)


def show_replay_validation(validation: ReplayValidation, format: str = "text") -> None:
    """Prints what traces predict beside the measurements, and how far they are apart."""
    out = console(format)
    body: list[list[str]] = []
    for row in validation.rows:
        predicted, verdict = seconds(row.low_s), percent(row.error, sign=True)
        if row.error is None:
            predicted = f"{seconds(row.low_s)} to {seconds(row.high_s)}"
            verdict = f"outside by {percent(abs(row.outside))}" if row.outside else "inside"
        cells = [
            row.workload,
            f"{row.ranks}",
            row.network,
            row.question,
            seconds(row.measured_s),
            predicted,
            verdict,
        ]
        body.append(cells)
    head = ["workload", "ranks", "traces over", "question", "measured", "predicted", "error"]
    out.print(table("Measured iteration, and predicted from traces of another experiment", head, body))
    out.print(f"  {validation.text}")
    _show_left_out(out, validation.left_out)


def _show_left_out(out: Console, left_out: Sequence[tuple[str, str]]) -> None:
    by_reason: dict[str, list[str]] = {}
    for cell, reason in left_out:
        by_reason.setdefault(reason, []).append(cell)
    for reason, cells in by_reason.items():
        named = ", ".join(cells[:MOST_NAMED]) + (" and others" if len(cells) > MOST_NAMED else "")
        out.print(f"  left out, {len(cells)} cell{'s' * (len(cells) != 1)}: {safe(reason)}: {safe(named)}")


def _errors_line(name: str, errors: dict[str, Any]) -> list[str]:
    return [
        name,
        str(errors["cells"]),
        percent(errors["mape"]),
        percent(errors["bias"], sign=True),
        percent(errors["max_ape"]),
        percent(errors["mean_fraction_error"]),
        percent(errors["interval_coverage"], 0),
    ]
