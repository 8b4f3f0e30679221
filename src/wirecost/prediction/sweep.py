"""Predicts sweeps: one prediction for each value of GPUs, bandwidth, batch, ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirecost.costmodel.setup import Setup, setup
from wirecost.errors import SpecError, one_of
from wirecost.prediction.job import JobOptions
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import with_bandwidth, with_nodes
from wirecost.units import format_rate_bps, parse_rate_bps

AXES = (
    "gpus",
    "bandwidth",
    "micro_batch",
    "global_batch",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "sequence_length",
)
SHORT_NAMES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "batch": "global_batch",
}
MAX_POINTS = 500


@dataclass(frozen=True)
class Point:
    """One value of a sweep; `prediction` is None if the configuration is impossible, with the
    reason in `refused`.
    """

    value: float
    label: str
    prediction: Prediction | None
    refused: str | None = None

    def row(self) -> dict[str, Any]:
        """Returns plain data for a JSON document or a figure."""
        if self.prediction is None:
            return {"value": self.value, "label": self.label, "refused": self.refused}
        p = self.prediction
        interval = p.breakdown.interval
        return {
            "value": self.value,
            "label": self.label,
            "gpus": p.setup.gpus,
            "micro_batch": p.setup.micro_batch,
            "global_batch": p.setup.global_batch,
            "iteration_s": p.total_s,
            "low_s": interval.low_ns / 1e9 if interval else None,
            "high_s": interval.high_ns / 1e9 if interval else None,
            "comm_fraction": p.comm_fraction,
            "tokens_per_s": p.tokens_per_s,
            "mfu": p.mfu,
            "memory_bytes": float(p.memory.total),
            "fits": p.fits,
            "warnings": [w.code for w in p.breakdown.diagnostics],
        }


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Returns the axis and the values of 'gpus=8,16,32'; '8..512' doubles from 8 to 512.

    Raises:
        SpecError: for an unknown axis, no values, or more than MAX_POINTS.
    """
    axis, _, listed = text.partition("=")
    axis = axis.strip().replace("-", "_")
    axis = SHORT_NAMES.get(axis, axis)
    if axis not in AXES:
        raise SpecError(one_of("sweep axis", axis, AXES) + "; written like gpus=8,16,32 or gpus=8..512")
    values: list[str] = []
    for part in listed.split(","):
        low, dots, high = part.strip().partition("..")
        if not dots:
            values += [low] if low else []
            continue
        try:
            start, end = (parse_rate_bps(x) if axis == "bandwidth" else float(x) for x in (low, high))
        except ValueError as error:
            raise SpecError(f"{axis}: {error}") from error
        if not 0 < start <= end:
            raise SpecError(f"{axis}: a range goes from a smaller to a larger positive value, not '{part}'")
        while start <= end * 1.0001 and len(values) <= MAX_POINTS:
            values.append(format_rate_bps(start, 12) if axis == "bandwidth" else f"{start:.0f}")
            start *= 2
    if not values:
        raise SpecError(f"{axis}: no values; written like {axis}=8,16,32")
    if len(values) > MAX_POINTS:
        raise SpecError(f"{axis}: {len(values)} values; at most {MAX_POINTS} make a sweep")
    return axis, values


def with_first_value(options: JobOptions, axis: str, values: Sequence[str]) -> JobOptions:
    """Returns the options of the job from which a sweep starts. A sweep over GPUs starts from its first number,
    because a batch that suits it needn't suit the whole cluster.
    """
    first = values[0]
    return {**options, "gpus": int(first)} if axis == "gpus" and first.isdigit() else options


def sweep(base: Setup, axis: str, values: Sequence[str]) -> list[Point]:
    """Returns a prediction for each value, with everything else as in `base`. An impossible value
    has the reason.

    A global batch that the job states stays (strong scaling). Without one every rank keeps its batch, so that the
    global batch grows with the GPUs (weak scaling).
    """
    points = []
    for text in values:
        try:
            number = parse_rate_bps(text) if axis == "bandwidth" else float(int(text))
        except ValueError as error:
            raise SpecError(f"{axis}: {error}") from error
        try:
            points.append(Point(number, text, predict(_changed(base, axis, number))))
        except SpecError as error:
            points.append(Point(number, text, None, str(error)))
    return points


def _changed(base: Setup, axis: str, value: float) -> Setup:
    if axis == "bandwidth":
        return replace(base, cluster=with_bandwidth(base.cluster, value))
    count = int(value)
    workload, plan, cluster = base.workload, base.plan, base.cluster
    gpus, micro, batch = base.gpus, base.micro_batch, base.global_batch
    per_rank = base.micro_batch * base.accumulation
    if axis == "gpus":
        cluster, gpus = with_nodes(cluster, count), count
        if not base.batch_given:
            batch = per_rank * (count // plan.model_parallel) or 1  # weak scaling: every rank keeps its batch
    elif axis == "micro_batch":
        micro = count
        if not base.batch_given:
            batch = count * base.accumulation * base.data_parallel
    elif axis == "global_batch":
        batch = count
    elif axis == "sequence_length":
        workload = workload.model_copy(update={"sequence_length": count})
    else:
        plan = plan.model_copy(update={axis: count})
    changed = setup(workload, plan, cluster, stack=base.stack, gpus=gpus, micro_batch=micro, global_batch=batch)
    return replace(changed, batch_given=base.batch_given)
