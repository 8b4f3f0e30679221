"""Measures and prints what communication costs the host, for `wirecost calibrate --measure-host`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from wirecost.text import printable

if TYPE_CHECKING:
    from wirecost.calibration.inputs.gather import Inputs
    from wirecost.calibration.inputs.runs import Observed
    from wirecost.calibration.result import Calibration
    from wirecost.spec import Stack, Workload
    from wirecost.train.hosttimes import HostCost, HostRequest, MeasuredHost

NAMES = {"layer": "host_forward_s + host_backward_s"}
"""Names of rows that are not one key of a stack."""


def checked_requests(inputs: Inputs, workload: Workload | None) -> list[HostRequest]:
    """Returns what to measure, after checking that this machine can.

    Raises:
        WirecostError: if it can't, or if the runs are not of a GPU.
    """
    from wirecost.calibration.host import check_gpu, host_requests
    from wirecost.study.runnable import gpus_here

    requests = host_requests(inputs.runs, workload, inputs.diagnostics)
    check_gpu(inputs.runs, gpus_here())
    return requests


def with_measured(
    calibration: Calibration, requests: Sequence[HostRequest], runs: Sequence[Observed]
) -> Calibration:
    """Returns the calibration with the host's times, and shows progress while they are measured."""
    from wirecost.calibration.host import check_same_gpu, with_measured_host
    from wirecost.cli.progress import progress_bar
    from wirecost.train.hosttimes import measure_host

    for request in requests:
        with progress_bar() as bar:
            name = f"host times, {printable(request.workload.name)} in {request.precision}"
            task = bar.add_task(name, total=None, count="", left="")
            if bar.disable:
                typer.echo(f"measuring {name}: at most {request.limit_s:.0f} s", err=True)

            def tell(done: int, total: int, what: str) -> None:
                bar.update(task, completed=done, total=total, count=printable(what))  # noqa: B023 - called in the loop

            measured = measure_host(request, tell)
        check_same_gpu(runs, measured)
        calibration = with_measured_host(calibration, measured)
    return calibration


def host_rows(calibration: Calibration) -> list[dict[str, Any]]:
    """Returns a row for each measured value of each stack, with the columns of fitted properties."""
    from wirecost.calibration.host import KEYS, LAYER_KEYS, host_values

    rows = []
    for precision, host in calibration.hosts.items():
        values = host_values(host, calibration.stacks[precision])
        for cost, each in host.costs.items():
            for key in (KEYS[cost],) if cost in KEYS else LAYER_KEYS[cost]:
                rows.append(
                    {
                        "fit": f"host of {host.device_name} in {precision}",
                        "property": f"stack {calibration.stacks[precision].name} {key}",
                        "before": None,
                        "after": values.get(key),
                        "unit": "ratio" if key == "host_gated" else "s",
                        "within": None,
                        "measurements": each.difference_s.n if each.difference_s else 0,
                        "not_determined": None if key in values else each.note,
                    }
                )
    return rows


def print_host(host: MeasuredHost, stack: Stack | None, format: str) -> None:
    """Prints a row for each kind of communication and of layer, and why a time is unknown.

    Args:
        stack: the stack that has the values. None if no stack gets them.
    """
    from wirecost.calibration.host import KEYS, LAYER_KEYS, host_values
    from wirecost.cli.output import console, safe, table
    from wirecost.spec import Device

    out = console(format)
    values = host_values(host, stack) if stack is not None else {}
    measured = (
        f"  {host.workload.name} in {host.precision}, {host.micro_batches} micro-batches of {host.micro_batch}, "
        f"{host.workload.layers} layers, sequences of {host.workload.sequence_length}"
    )
    launches = host.device is Device.CUDA
    missing = "unknown" if launches else "not used"
    rows, notes = [], []
    for cost, each in host.costs.items():
        keys = (KEYS[cost],) if cost in KEYS else LAYER_KEYS[cost]
        known = [f"{values[key]:.4g}" for key in keys if key in values]
        name = NAMES.get(str(cost), keys[0])
        rows.append([name, each.calls or "none", _microseconds(each), " + ".join(known) or missing])
        if each.note is not None:
            left = "; the stack keeps its value" if launches and not known else ""
            notes.append(f"  {name}: {each.note}{left}")
    heads = ["key of the stack", "calls", "each in us", "value"]
    out.print(table(f"Host of {host.device_name or 'processors'}", heads, rows))
    out.print(safe(measured))
    for note in notes:
        out.print(safe(note))
    if not launches:
        out.print("  the host computes as well, so that these are not times to launch: no stack gets them")


def _microseconds(each: HostCost) -> str:
    spread = each.each_spread_s
    if spread is None:
        return "unknown"
    return f"{spread.median * 1e6:.0f} ({spread.q1 * 1e6:.0f} to {spread.q3 * 1e6:.0f})"
