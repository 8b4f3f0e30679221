"""Sweeps: one prediction for each value of GPUs, bandwidth, batch, ... as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirecost.errors import SpecError, one_of
from wirecost.model.load import with_bandwidth, with_nodes
from wirecost.model.predict import Prediction, predict
from wirecost.model.setup import Setup, setup
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
MAX_POINTS = 500


@dataclass(frozen=True)
class Point:
    """One value of a sweep; `prediction` is None where the configuration can't be, and `refused` says why."""

    value: float
    label: str
    prediction: Prediction | None
    refused: str | None = None

    def row(self) -> dict[str, Any]:
        if self.prediction is None:
            return {"value": self.value, "label": self.label, "refused": self.refused}
        p = self.prediction
        interval = p.breakdown.interval
        return {
            "value": self.value,
            "label": self.label,
            "iteration_s": float(p.times.total_s),
            "low_s": interval.low_ns / 1e9 if interval else None,
            "high_s": interval.high_ns / 1e9 if interval else None,
            "comm_fraction": float(p.times.exposed_comm_s / p.times.total_s),
            "tokens_per_s": p.tokens_per_s,
            "mfu": p.mfu,
            "memory_bytes": float(p.memory.total),
            "fits": p.fits,
            "warnings": [w.code for w in p.breakdown.diagnostics],
        }


def parse_axis(text: str) -> tuple[str, list[str]]:
    """'gpus=8,16,32' in its axis and values; '8..512' doubles from 8 to 512.

    Raises:
        SpecError: for an unknown axis, no values, or more than MAX_POINTS.
    """
    axis, _, listed = text.partition("=")
    axis = axis.strip().replace("-", "_")
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


def sweep(made: Setup, axis: str, values: Sequence[str]) -> list[Point]:
    """A prediction for each value, everything else as in `made`. What can't be is a Point with its reason."""
    points = []
    for text in values:
        try:
            number = parse_rate_bps(text) if axis == "bandwidth" else float(int(text))
        except ValueError as error:
            raise SpecError(f"{axis}: {error}") from error
        try:
            points.append(Point(number, text, predict(_changed(made, axis, number))))
        except SpecError as error:
            points.append(Point(number, text, None, str(error)))
    return points


def _changed(made: Setup, axis: str, value: float) -> Setup:
    if axis == "bandwidth":
        return replace(made, cluster=with_bandwidth(made.cluster, value))
    count = int(value)
    workload, plan, cluster = made.workload, made.plan, made.cluster
    gpus, micro, batch = made.gpus, made.micro_batch, made.global_batch
    per_rank = made.micro_batch * made.accumulation
    if axis == "gpus":
        cluster, gpus = with_nodes(cluster, count), count
        batch = per_rank * (count // plan.model_parallel) or 1  # weak scaling: every rank keeps its batch
    elif axis == "micro_batch":
        micro = count
        batch = count * made.accumulation * made.data_parallel
    elif axis == "global_batch":
        batch = count
    elif axis == "sequence_length":
        workload = workload.model_copy(update={"sequence_length": count})
    else:
        plan = plan.model_copy(update={axis: count})
    return setup(workload, plan, cluster, stack=made.stack, gpus=gpus, micro_batch=micro, global_batch=batch)


def plot(points: Sequence[Point], axis: str, title: str, path: Path) -> None:
    """Iteration time with its interval, and comm fraction, over the axis; PNG or SVG by the path's ending.

    Raises:
        SpecError: for another ending, or nothing to draw.
    """
    if path.suffix not in (".png", ".svg"):
        raise SpecError(f"{path}: a plot is a .png or .svg")
    rows = [p.row() for p in points if p.prediction is not None]
    if not rows:
        raise SpecError("nothing to plot: no value of the sweep can be")
    import altair as alt

    scale = {"bandwidth": 1e9}.get(axis, 1)
    for row in rows:
        row["x"] = row["value"] / scale
        row["memory"] = "fits" if row["fits"] else "out of memory"
    name = {"bandwidth": "bandwidth of a node, Gb/s"}.get(axis, axis.replace("_", " "))
    x = alt.X("x:Q", title=name, scale=alt.Scale(type="log", base=2) if len(rows) > 2 else alt.Undefined)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    color = alt.Color(
        "memory:N", title=None, scale=alt.Scale(domain=["fits", "out of memory"], range=["#2a6f97", "#bc4b51"])
    )
    time = (
        base.mark_area(opacity=0.2, color="#2a6f97").encode(
            y=alt.Y("low_s:Q", title="predicted iteration time, s"), y2="high_s:Q"
        )
        + base.mark_line(color="#2a6f97").encode(y="iteration_s:Q")
        + base.mark_point(filled=True, size=50).encode(y="iteration_s:Q", color=color)
    )
    share = base.mark_line(color="#6a994e", point=True).encode(
        y=alt.Y("comm_fraction:Q", title="predicted comm fraction", scale=alt.Scale(domain=[0, 1]))
    )
    chart = alt.hconcat(
        time.properties(width=340, height=240), share.properties(width=340, height=240), title=title
    )
    from wirecost.report.rendering import render

    try:
        path.write_bytes(render([(chart.to_json(), "png" if path.suffix == ".png" else "svg")])[0])
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror}") from error
