"""Fits a device and a software stack to runs of one precision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.calibration.corrections import correction_spread, workload_corrections
from wirecost.calibration.fit import LEAST_SPREAD, Description, Fit, HoldOut, fit
from wirecost.calibration.inputs.columns import CannotExpressError
from wirecost.calibration.inputs.row_machine import find_gpu, link_named
from wirecost.calibration.inputs.runs import Observed
from wirecost.calibration.properties import (
    DEVICE,
    HOST,
    PROPERTIES,
    Free,
    Parts,
    by_owner,
    fitted_to,
    free,
    start_of,
)
from wirecost.calibration.run_rows import Runs
from wirecost.errors import SpecError
from wirecost.spec import GPU, MatrixPrecision, Precision, SharedCores, Stack, gpu, stack_named

STACK_KEYS = (
    "attention_efficiency",
    "hidden_bytes",
    "sharded_bytes",
    "host_forward_s",
    "host_backward_s",
    "host_vocabulary_s",
    "vocabulary_bytes",
    "vocabulary_efficiency",
    "optimizer_bytes",
    "iteration_s",
)
"""Properties of a stack that runs of one rank can determine."""
RELATIVE_TO_PRODUCTS = ("matrix_efficiency", "attention_efficiency", "vocabulary_efficiency")
"""A stack's properties that multiply the GPU's efficiency of matrix products."""
OF_LAUNCHES = 0.6
"""Uncertainty of each time of the host's launches beside what they have in common: the spread between stacks and
that of their mean (`wirecost.calibration.levels`)."""
CPU_FLOPS, CPU_BPS = PROPERTIES["gpu", "peak_flops"].start, 10e9
"""A typical core's FP32 rate and memory bandwidth. The fit of the first starts from its value; traffic is fitted
relative to the second.
"""


@dataclass(frozen=True)
class DeviceFit:
    """The fit to the runs of one precision: the device, the stack, the shared cores, and the fit, whose errors are
    those of each run's time without exposed communication.
    """

    precision: Precision
    gpu: GPU
    stack: Stack
    shared_cores: SharedCores | None
    fit: Fit


def fit_runs(runs: Sequence[Observed], *, gpu_name: str | None = None, stack: Stack | None = None) -> DeviceFit:
    """Fits to runs of one precision on one device. Needs scipy.

    Raises:
        SpecError: for runs on different devices or in different precisions, or on an unnamed device.
    """
    if not runs:
        raise SpecError("no run to calibrate compute on")
    precisions = {run.plan.precision for run in runs}
    if len(precisions) > 1:
        raise SpecError(f"runs in {', '.join(sorted(precisions))}: one fit is of one precision")
    precision = precisions.pop()
    devices = {run.device for run in runs if run.device}
    if len(devices) > 1:
        raise SpecError(f"runs on different devices ({', '.join(sorted(devices))}): calibrate each apart")
    on_cpu = runs[0].on_cpu
    device = _device(gpu_name, devices.pop() if devices else None, runs, precision)
    base = stack or stack_named("engine-cpu" if on_cpu else "engine-cuda")
    link = link_named("shared-memory")  # any link will do
    parts = Parts(device, base, link, link, _cores(runs) if on_cpu else None)
    problem = Runs(runs, parts, precision)
    properties = _properties(parts, runs, new_device=on_cpu and gpu_name is None)
    diagnostics = tuple(dict.fromkeys(d for run in runs for d in run.diagnostics))
    description = Description(
        f"{device.name} in {precision}",
        tuple(run.name for run in runs),
        reset=False,
        common=(DEVICE, HOST),
        diagnostics=diagnostics,
    )
    run_fit = fit(problem, properties, description, HoldOut(folds=len(runs)))
    best = parts.with_values(run_fit.values)
    owned = by_owner(run_fit.determined)
    text = f"fitted by wirecost calibrate to {len(runs)} run{'s' * (len(runs) != 1)}: {_names(runs)}"
    return DeviceFit(
        precision,
        best.gpu.model_copy(update=fitted_to("gpu", owned.get(("gpu", device.name), ()), text)),
        _calibrated(best.stack, base, problem, run_fit, text),
        best.shared_cores,
        run_fit,
    )


def _calibrated(stack: Stack, base: Stack, problem: Runs, run_fit: Fit, text: str) -> Stack:
    """Returns the stack with information from the runs other than its properties."""
    runs = problem.runs
    corrections = workload_corrections(runs, problem.predict(run_fit.values))
    ranges = {
        "gpus": [run.ranks for run in runs],
        "hidden": [run.workload.hidden for run in runs],
        "layers": [run.workload.layers for run in runs],
        "sequence_length": [run.workload.sequence_length for run in runs],
        "micro_batch": [run.micro_batch for run in runs],
    }
    return stack.with_values(
        {
            "name": f"calibrated-{problem.precision}",
            "description": f"{base.description}; calibrated",
            **fitted_to("stack", (), text),
            "calibrated_range": {key: (float(min(v)), float(max(v))) for key, v in ranges.items()},
            "spread": run_fit.errors.spread or base.accuracy.spread,
            "workload_corrections": corrections,
            "workload_correction_spread": correction_spread(runs, corrections, LEAST_SPREAD),
            "host_jitter": _jitter(runs, base),
        }
    )


def _jitter(runs: Sequence[Observed], base: Stack) -> float:
    """Returns the median jitter of the host-bound runs (on a processor or waiting for launches), since one of them
    may have been disturbed. Without such runs it is the base's.
    """
    paced = [run for run in runs if not run.diagnostics and (run.on_cpu or run.launch_bound)]
    jitters = [run.jitter for run in paced if run.jitter is not None]
    return float(f"{np.median(jitters):.3g}") if jitters else base.host.jitter


def on_one_gpu(fits: Sequence[DeviceFit]) -> list[DeviceFit]:
    """Returns fits of several precisions with one device for all: a processor with every precision's rate, a GPU
    with the best fitted efficiency of products. Each precision's shortfall moves to its stack.
    """
    if not fits:
        return []
    peaks = {key: value for fit in fits for key, value in fit.gpu.peak_flops.items()}
    best = max((fit.gpu for fit in fits), key=lambda device: device.matrix_efficiency)
    shared = []
    for each in fits:
        share = each.gpu.matrix_efficiency / best.matrix_efficiency
        lowered = {key: each.stack.value(key) * share for key in RELATIVE_TO_PRODUCTS} if share < 1 else {}
        device = best.model_copy(update={"peak_flops": peaks})
        shared.append(replace(each, gpu=device, stack=each.stack.with_values(lowered)))
    return shared


def _names(runs: Sequence[Observed], most: int = 3) -> str:
    names = [run.name for run in runs[:most]]
    return ", ".join(names) + (f" and {len(runs) - most} more" if len(runs) > most else "")


def _device(given: str | None, seen: str | None, runs: Sequence[Observed], precision: Precision) -> GPU:
    if given is not None:
        try:
            return gpu(given)
        except ValueError as error:
            raise SpecError(f"--gpu: {error}") from error
    if not runs[0].on_cpu:
        if seen is None:
            raise SpecError("nothing says which GPU the runs were on: give --gpu")
        try:
            return find_gpu(seen)
        except CannotExpressError as error:
            raise SpecError(f"{error}; give --gpu") from error
    threads = max(run.threads for run in runs)
    plain = re.sub(r"[^a-z0-9]+", "-", (seen or "processor").lower()).strip("-")
    return GPU(
        name=f"cpu-{plain}"[:60],
        architecture="cpu",
        memory_bytes=max((run.memory_bytes or 0 for run in runs), default=0) or 1 << 34,
        memory_bandwidth_Bps=CPU_BPS * threads,
        peak_flops={MatrixPrecision(precision): CPU_FLOPS * threads},
        matrix_efficiency=1.0,
        memory_efficiency=1.0,
        source=f"{seen or 'a processor'}, {threads} threads a rank: peak_flops is what products reach, as fitted; "
        "traffic is fitted against a memory bandwidth of 10 GB/s a thread",
    )


def _cores(runs: Sequence[Observed]) -> SharedCores:
    return SharedCores(
        count=max(run.machine_cores or run.cores or 1 for run in runs),
        threads=max(run.threads for run in runs),
        shared_by="all",
        source="cores as the runs' environment.json has them; serial by judgement",
    )


def _properties(parts: Parts, runs: Sequence[Observed], *, new_device: bool) -> list[Free]:
    """Returns the properties that may be fitted. The rate of products is fitted for a processor without a
    description.
    """
    device, stack, cores = parts.gpu, parts.stack, parts.shared_cores
    key = "peak_flops" if new_device else "matrix_efficiency"
    properties = [free(f"gpu {device.name} {key}", PROPERTIES["gpu", key], start_of(device, key))]
    properties += [
        free(f"stack {stack.name} {key}", PROPERTIES["stack", key], start_of(stack, key)) for key in STACK_KEYS
    ]
    if cores is not None and len({(run.threads, run.ranks) for run in runs}) > 1:
        entry = PROPERTIES["shared_cores", "serial"]
        properties.append(free(f"shared_cores {device.name} serial", entry, cores.serial))
    launches = [p.name.rpartition(" ")[2] in HOST.exponents for p in properties]
    return [
        replace(p, uncertainty=OF_LAUNCHES) if is_launch else p
        for p, is_launch in zip(properties, launches, strict=True)
    ]
