"""Measures a host's times for communication on this machine, and puts them into calibrated stacks.

The engine issues some collectives that the cost model doesn't count: those of the embedding and of the loss. The
values of a stack are therefore the measured time over the number of calls that the model counts for the measured
workload, so that the model has exactly the measured time for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from wirecost.breakdown.statistics import Spread
from wirecost.calibration.inputs.runs import Observed
from wirecost.calibration.result import Calibration
from wirecost.costmodel.host_launch import sequence_collectives, tensor_collectives, unit_gathers
from wirecost.costmodel.shape import shape_of
from wirecost.diagnostics import Diagnostic
from wirecost.errors import SpecError, UnsupportedError
from wirecost.spec import Device, Family, Precision, Provenance, Stack, Workload
from wirecost.spec.parameters import count
from wirecost.text import printable
from wirecost.train.checks import check_workload
from wirecost.train.hosttimes import Cost, HostRequest, MeasuredHost

KEYS: dict[Cost, str] = {
    Cost.TENSOR_COLLECTIVE: "host_collective_s",
    Cost.SEQUENCE_COLLECTIVE: "host_sequence_collective_s",
    Cost.UNIT: "host_shard_s",
    Cost.TRANSFER: "host_transfer_s",
}
"""Keys of a stack by what is measured of communication."""
LAYER_KEYS = {Cost.LAYER: ("host_forward_s", "host_backward_s"), Cost.GATED_LAYER: ("host_gated",)}
"""Keys of a stack by what is measured of layers."""
FORWARD = 1 / 3
"""Share of forward in the time to launch a layer, where a stack has no times of its own: backward launches two
products where forward launches one."""
STAGE_TRANSFERS = 2.0
"""Transfers of a pipeline's first stage for one micro-batch: a state goes on, and its gradient comes back."""


def host_requests(
    runs: Sequence[Observed], workload: Workload | None = None, left_out: Sequence[Diagnostic] = ()
) -> list[HostRequest]:
    """Returns a request for each precision of the runs, in the order of their names.

    Args:
        workload: what to measure with. None is the smallest workload of the runs in that precision, of which the
            variants take the least memory, and a decoder if there is one, whose layers are measured as well.
        left_out: why there are no further runs.

    Raises:
        SpecError: without runs, with runs on processors, or with a workload that the engine can't train.
    """
    if not runs:
        reason = f" (left out: {left_out[0].subject}: {left_out[0].message})" if left_out else ""
        raise SpecError(
            "--measure-host: the host's times are part of a stack, which needs runs: add a study's results or an "
            f"experiment's directory{reason}"
        )
    if on_cpu := [run.name for run in runs if run.on_cpu]:
        raise SpecError(
            f"--measure-host: {on_cpu[0]} ran on processors, where the host computes as well and launches "
            "nothing: give runs on a GPU, or leave the option out"
        )
    requests = []
    for precision in sorted({run.plan.precision for run in runs}):
        own = [run.workload for run in runs if run.plan.precision == precision]
        smallest = workload or min(own, key=lambda each: (each.family is not Family.GPT, count(each).total))
        if problem := check_workload(smallest):
            raise SpecError(f"--measure-host: {problem}")
        requests.append(HostRequest(smallest, precision))
    return requests


def check_gpu(runs: Sequence[Observed], gpus: int) -> None:
    """Checks that this machine can measure.

    Args:
        gpus: number of GPUs that PyTorch finds.

    Raises:
        UnsupportedError: without a GPU.
    """
    if gpus < 1:
        where = runs[0].device or "a GPU"
        raise UnsupportedError(
            f"--measure-host: PyTorch finds no GPU here: measure on the machine of the runs ({printable(where)}), "
            "or leave the option out"
        )


def check_same_gpu(runs: Sequence[Observed], measured: MeasuredHost) -> None:
    """Checks that runs were made on the kind of GPU that this machine has.

    Raises:
        SpecError: for runs on another one, whose host is another one as well.
    """
    here = measured.device_name
    others = sorted({run.device for run in runs if run.device and here and run.device != here})
    if others:
        raise SpecError(
            f"--measure-host: the runs are of {printable(others[0])}, and this machine has "
            f"{printable(str(here))}: measure on the machine of the runs"
        )


def with_measured_host(calibration: Calibration, measured: MeasuredHost) -> Calibration:
    """Returns the calibration whose stack of the measured precision has the measured values. Unknown values leave
    those of the stack."""
    precision = Precision(measured.precision)
    stacks = dict(calibration.stacks)
    if precision in stacks:
        stacks[precision] = with_host_values(stacks[precision], measured)
    return replace(calibration, stacks=stacks, hosts={**calibration.hosts, precision: measured})


def with_host_values(stack: Stack, measured: MeasuredHost) -> Stack:
    """Returns the stack with the measured values, and a text that names their source."""
    values = host_values(measured, stack)
    if not values:
        return stack
    before = f"{stack.calibration}; " if stack.calibration else ""
    where = printable(measured.device_name or "this machine")
    text = (
        f"{before}{', '.join(sorted(values))} measured by wirecost calibrate --measure-host on the host of "
        f"{where} with {measured.workload.name} in {measured.precision}"
    )
    return stack.with_values({**values, "provenance": Provenance.MEASURED, "calibration": text})


def host_values(measured: MeasuredHost, stack: Stack) -> dict[str, float]:
    """Returns the values of a stack's keys, times in seconds. Unknown values are left out, and so are those of a
    CPU, where the time to issue an iteration is that of its computation as well.

    Args:
        stack: the stack that gets the values. The time of a layer is divided between forward and backward as its
            times are.
    """
    if measured.device is not Device.CUDA:
        return {}
    counted = counted_calls(measured, stack)
    values = {
        KEYS[cost]: each.iteration_s / counted[cost]
        for cost, each in measured.costs.items()
        if cost in KEYS and each.iteration_s is not None
    }
    plain, gated = measured.costs[Cost.LAYER].each_s, measured.costs[Cost.GATED_LAYER].each_s
    if plain and gated:
        # One without the other would give the layers of one kind a wrong time.
        before = stack.host.forward_s + stack.host.backward_s
        share = stack.host.forward_s / before if before else FORWARD
        values |= {"host_forward_s": share * plain, "host_backward_s": (1 - share) * plain}
        values["host_gated"] = gated / plain
    return {key: float(f"{value:.4g}") for key, value in values.items()}


def commented_values(text: str, measured: MeasuredHost, stack: Stack) -> str:
    """Returns the YAML of a stack that has the measured values, with a comment on the source of each of them."""
    if measured.device is not Device.CUDA:
        return text
    comments: dict[str, str] = {}
    for cost, number in counted_calls(measured, stack).items():
        each = measured.costs[cost]
        if each.iteration_s is not None and each.difference_s is not None:
            comments[KEYS[cost]] = _quartiles(each.difference_s, number)
    layers = [measured.costs[cost] for cost in (Cost.LAYER, Cost.GATED_LAYER)]
    if all(each.each_s for each in layers):
        plain, gated = (_quartiles(each.difference_s, each.calls or 1) for each in layers)
        comments |= dict.fromkeys(("host_forward_s", "host_backward_s"), f"together {plain}")
        comments["host_gated"] = f"a gated layer {gated}"
    for key, comment in comments.items():
        text = re.sub(rf"^({key}: \S+)(  #.*)?$", rf"\1  # {comment}", text, count=1, flags=re.MULTILINE)
    return text


def _quartiles(spread: Spread | None, calls: float) -> str:
    if spread is None:
        return "measured"
    low, high = (f"{max(quartile, 0.0) / calls * 1e6:.3g}" for quartile in (spread.q1, spread.q3))
    return f"measured, quartiles {low} to {high} us"


def counted_calls(measured: MeasuredHost, stack: Stack) -> dict[Cost, float]:
    """Returns how many calls of each kind the cost model counts in the measured iteration of a stack."""
    shape = shape_of(measured.workload)
    each = {
        Cost.TENSOR_COLLECTIVE: tensor_collectives(shape),
        Cost.SEQUENCE_COLLECTIVE: sequence_collectives(shape),
        Cost.UNIT: unit_gathers(shape.layers + shape.decoder_layers, shape, stack.data_parallel),
        Cost.TRANSFER: STAGE_TRANSFERS,
    }
    return {cost: float(measured.micro_batches * number) for cost, number in each.items()}
