"""Fits a device and a software stack to runs, as far as the runs tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wirecost.calibration.identify import Property, Told, fit_once, identify
from wirecost.calibration.observed import NOISE, Observed
from wirecost.calibration.seen import seen_spread, seen_workloads
from wirecost.errors import SpecError
from wirecost.model.batch import stacked_layout, stacked_shape
from wirecost.model.columns import CannotExpressError
from wirecost.model.inputs import Machine
from wirecost.model.iteration import iterate
from wirecost.model.machine import build, stack_named
from wirecost.model.parameters import shape_of
from wirecost.model.rows import find_gpu
from wirecost.model.setup import Setup, layout_of, setup
from wirecost.spec import GPU, Cluster, Cores, Link, MatrixPrecision, Precision, Stack, gpu
from wirecost.spec.presets import named

DOUBTS: dict[str, float] = {
    # standard deviation of log(property / its start)
    "attention_efficiency": 0.7,
    "hidden_bytes": 0.7,
    "sharded_bytes": 0.5,
    "host_forward_s": 1.0,
    "host_backward_s": 1.0,
    "host_vocabulary_s": 1.0,
    "vocabulary_bytes": 0.5,
    "vocabulary_efficiency": 0.2,
    "optimizer_bytes": 1.0,
    "iteration_s": 2.0,
}
LIMITS = {
    "matrix_efficiency": (0.2, 0.98),
    "attention_efficiency": (0.02, 1.5),
    "vocabulary_efficiency": (0.1, 1.0),
    "serial": (0.005, 0.9),
}
KNOWN_GPU, UNKNOWN_PEAK, SERIAL = 0.15, 1.2, 1.0
RELATIVE_TO_PRODUCTS = ("matrix_efficiency", "attention_efficiency", "vocabulary_efficiency")
"""A stack's properties that multiply the GPU's efficiency of matrix products."""
CPU_FLOPS, CPU_BPS = 40e9, 10e9
"""A usual core's FP32 products and memory bandwidth, to start from; the runs decide on the first, and traffic is
fitted against the second."""
LEAST_SPREAD = 0.05
FEWEST_TO_HOLD_OUT = 3
_LINK = Link.model_validate(named("link", "shared-memory"))


@dataclass
class DeviceFit:
    """What the runs of one precision gave. `errors` are predicted / measured - 1 of each run's time without
    exposed communication; `held_out` the same from fits without that run, None for too few runs."""

    gpu: GPU
    stack: Stack
    cores: Cores | None
    told: list[Told]
    runs: list[str]
    errors: list[float]
    held_out: list[float] | None
    doubts: list[str] = field(default_factory=list)


def fit_device(runs: Sequence[Observed], *, gpu_name: str | None = None, stack: Stack | None = None) -> DeviceFit:
    """Fits to runs of one precision on one device. Needs scipy.

    Raises:
        SpecError: for runs on different devices or in different precisions, or on a device that nobody named.
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
    cores = _cores(runs) if on_cpu else None
    properties = _properties(device, base, cores, runs, precision, new=on_cpu and gpu_name is None)
    start = _Candidate(device, base, cores, precision)
    problem = _Problem(runs, device, base)
    told = identify(properties, lambda values: problem.errors(start.given(values)))
    best = start.given({one.name: one.value for one in told})
    held_out = None
    if len(runs) >= FEWEST_TO_HOLD_OUT:
        held_out = _held_out(problem, start, [p for p, one in zip(properties, told, strict=True) if one.told])
    spread = base.spread
    if held_out:
        # Of few runs the largest error stands for the 90 % quantile.
        spread = max(LEAST_SPREAD, float(np.quantile(np.abs(np.log1p(held_out)), 0.9, method="higher")))
    seen = seen_workloads(runs, problem.predict(best))
    said = f"fitted by wirecost calibrate to {len(runs)} run{'s' * (len(runs) != 1)}: {_names(runs)}"
    ranges = {
        key: (float(min(values)), float(max(values)))
        for key, values in {
            "gpus": [run.ranks for run in runs],
            "hidden": [run.workload.hidden for run in runs],
            "layers": [run.workload.layers for run in runs],
            "sequence_length": [run.workload.sequence_length for run in runs],
            "micro_batch": [run.micro_batch for run in runs],
        }.items()
    }
    fitted = best.stack.model_copy(
        update={
            "name": f"calibrated-{precision}",
            "description": f"{base.description}; calibrated",
            "calibration": said,
            "calibrated_range": ranges,
            "spread": spread,
            "seen": seen,
            "seen_spread": seen_spread(runs, seen, LEAST_SPREAD),
            "host_jitter": _jitter(runs, base),
        }
    )
    return DeviceFit(
        gpu=best.gpu.model_copy(update={"calibration": said}),
        stack=fitted,
        cores=best.cores,
        told=told,
        runs=[run.name for run in runs],
        errors=problem.total_errors(best).tolist(),
        held_out=held_out,
        doubts=sorted({doubt for run in runs for doubt in run.doubts}),
    )


def _jitter(runs: Sequence[Observed], base: Stack) -> float:
    """Of the runs that have their host's pace, on a processor or waiting for launches, the median, since something
    may have held up the one or the other; without any the start's."""
    paced = [run for run in runs if not run.doubts and (run.on_cpu or run.launch_bound)]
    found = [run.jitter for run in paced if run.jitter is not None]
    return float(f"{np.median(found):.3g}") if found else base.host_jitter


def on_one_gpu(fits: Sequence[DeviceFit]) -> list[DeviceFit]:
    """Fits of several precisions with one device for all: a processor with every precision's rate, a GPU with the
    best efficiency of products that was found; what each precision lacks of that moves to its stack."""
    if not fits:
        return []
    peaks = {key: value for fit in fits for key, value in fit.gpu.peak_flops.items()}
    best = max((fit.gpu for fit in fits), key=lambda one: one.matrix_efficiency)
    made = []
    for fit in fits:
        share = fit.gpu.matrix_efficiency / best.matrix_efficiency
        lowered = {name: getattr(fit.stack, name) * share for name in RELATIVE_TO_PRODUCTS} if share < 1 else {}
        stack = fit.stack.model_copy(update=lowered)
        made.append(replace(fit, gpu=best.model_copy(update={"peak_flops": peaks}), stack=stack))
    return made


def _held_out(problem: _Problem, start: _Candidate, free: Sequence[Property]) -> list[float]:
    """Each run's error under a fit of the told properties that did not see it."""
    found = []
    for index in range(len(problem.runs)):
        keep = np.arange(len(problem.runs)) != index
        values = fit_once(free, lambda given, keep=keep: problem.errors(start.given(given), keep))
        found.append(float(problem.total_errors(start.given(values))[index]))
    return found


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
    peaks = {MatrixPrecision.FP32: CPU_FLOPS * threads, MatrixPrecision(precision): CPU_FLOPS * threads}
    return GPU(
        name=f"cpu-{plain}"[:60],
        architecture="cpu",
        memory_bytes=max((run.memory_bytes or 0 for run in runs), default=0) or 1 << 34,
        memory_bandwidth_Bps=CPU_BPS * threads,
        peak_flops={p: v for p, v in peaks.items() if p == precision},
        matrix_efficiency=1.0,
        memory_efficiency=1.0,
        source=f"{seen or 'a processor'}, {threads} threads a rank: peak_flops is what products reach, as fitted; "
        "traffic is fitted against a memory bandwidth of 10 GB/s a thread",
    )


def _cores(runs: Sequence[Observed]) -> Cores:
    return Cores(
        count=max(run.machine_cores or run.cores or 1 for run in runs),
        threads=max(run.threads for run in runs),
        shared_by="all",
        source="cores as the runs' environment.json has them; serial by judgement",
    )


def _properties(
    device: GPU, stack: Stack, cores: Cores | None, runs: Sequence[Observed], precision: Precision, *, new: bool
) -> list[Property]:
    if new:
        found = [Property("gpu peak_flops", device.peak_flops[MatrixPrecision(precision)], UNKNOWN_PEAK)]
    else:
        found = [
            Property("gpu matrix_efficiency", device.matrix_efficiency, KNOWN_GPU, *LIMITS["matrix_efficiency"])
        ]
    for name, doubt in DOUBTS.items():
        value = float(getattr(stack, name)) or 1e-4
        found.append(Property(f"stack {name}", value, doubt, *LIMITS.get(name, (1e-30, 1e30))))
    if cores is not None and len({(run.threads, run.ranks) for run in runs}) > 1:
        found.append(Property("cores serial", cores.serial, SERIAL, *LIMITS["serial"]))
    return found


@dataclass(frozen=True)
class _Candidate:
    gpu: GPU
    stack: Stack
    cores: Cores | None
    precision: Precision

    def given(self, values: Mapping[str, float]) -> _Candidate:
        """With the values by property in place."""
        changes: dict[str, dict[str, object]] = {"gpu": {}, "stack": {}, "cores": {}}
        for name, value in values.items():
            kind, key = name.split()
            if key == "peak_flops":
                changes[kind][key] = {MatrixPrecision(self.precision): value}
            else:
                changes[kind][key] = value
        return _Candidate(
            self.gpu.model_copy(update=changes["gpu"]),
            self.stack.model_copy(update=changes["stack"]),
            self.cores and self.cores.model_copy(update=changes["cores"]),
            self.precision,
        )

    def machine(self, cores: int | None, ranks_per_host: int) -> Machine:
        # Compute is fitted apart from communication: any link does.
        shared = self.cores
        if shared is not None and cores:
            # A run may have been kept to fewer of the machine's cores.
            shared = shared.model_copy(update={"count": cores})
        return build(
            self.gpu,
            self.stack,
            intra=_LINK,
            inter=_LINK,
            gpus_per_node=ranks_per_host,
            precision=MatrixPrecision(self.precision),
            cores=shared,
        )


class _Problem:
    """Runs arranged for repeated evaluation: those that see the same machine go through the formulas together."""

    def __init__(self, runs: Sequence[Observed], device: GPU, stack: Stack) -> None:
        self.runs = list(runs)
        groups: dict[tuple[int | None, int], list[int]] = {}
        for index, run in enumerate(self.runs):
            groups.setdefault((run.cores, run.ranks_per_host), []).append(index)
        self.groups = [
            (
                key,
                np.array(members),
                stacked_shape([shape_of(self.runs[i].workload) for i in members]),
                stacked_layout([layout_of(_setup(self.runs[i], device, stack)) for i in members]),
            )
            for key, members in groups.items()
        ]
        self.measured = {part: np.array([run.parts.get(part, np.nan) for run in self.runs]) for part in NOISE}
        self.noise = {part: np.array([NOISE[part] * run.noise for run in self.runs]) for part in NOISE}

    def predict(self, candidate: _Candidate) -> dict[str, np.ndarray]:
        """Seconds of each run by part, as `Observed.parts` has them."""
        found = {part: np.empty(len(self.runs)) for part in NOISE}
        for key, members, shape, layout in self.groups:
            times = iterate(shape, layout, candidate.machine(*key))
            busy = times.compute_s + times.host_s
            forward = layout.accumulation * (times.forward_s + times.ends_s / 3)
            found["forward"][members] = forward
            found["backward"][members] = np.maximum(busy - forward, 1e-9)
            found["optimizer"][members] = times.optimizer_s
            found["other"][members] = times.other_s
            found["device"][members] = times.compute_s + times.optimizer_s
            found["window"][members] = times.total_s - times.exposed_comm_s
        return found

    def errors(self, candidate: _Candidate, keep: np.ndarray | None = None) -> np.ndarray:
        """log(predicted / measured) over its noise of every part measured, of the runs in `keep`."""
        found = self.predict(candidate)
        every = np.concatenate(
            [np.where(keep, np.log(found[p] / self.measured[p]) / self.noise[p], np.nan) for p in NOISE]
            if keep is not None
            else [np.log(found[p] / self.measured[p]) / self.noise[p] for p in NOISE]
        )
        return every[~np.isnan(every)]

    def total_errors(self, candidate: _Candidate) -> np.ndarray:
        """predicted / measured - 1 of each run's time without exposed communication."""
        found = self.predict(candidate)
        windows = np.array(["window" in run.parts for run in self.runs])
        engine = ("forward", "backward", "optimizer", "other")
        said = sum(np.where(np.isnan(self.measured[p]), 0.0, found[p]) for p in engine)
        seen = sum(np.nan_to_num(self.measured[p]) for p in engine)
        return np.where(windows, found["window"] / self.measured["window"], said / np.maximum(seen, 1e-12)) - 1


def _setup(run: Observed, device: GPU, stack: Stack) -> Setup:
    hosts = -(-run.ranks // run.ranks_per_host)
    cluster = Cluster(
        name="run", gpu=device, gpus_per_node=run.ranks_per_host, nodes=hosts, intra_node=_LINK, inter_node=_LINK
    )
    return setup(
        run.workload,
        run.plan,
        cluster,
        stack=stack,
        gpus=run.ranks,
        micro_batch=run.micro_batch,
        global_batch=run.global_batch,
    )
