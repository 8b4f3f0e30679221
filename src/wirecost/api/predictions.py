"""Predictions of the cost model, and how wrong they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from wirecost.api.view import ResultView, Rows
from wirecost.breakdown import Breakdown
from wirecost.errors import SpecError, one_of
from wirecost.prediction import need as needs
from wirecost.prediction.basis import basis_of
from wirecost.prediction.job import JobOptions, setup_of
from wirecost.prediction.predict import Prediction, iteration_parts, largest_micro_batch, memory_parts
from wirecost.prediction.predict import predict as predict_setup
from wirecost.prediction.sweep import Point, parse_axis, with_first_value
from wirecost.prediction.sweep import sweep as sweep_setup
from wirecost.spec import Workload

if TYPE_CHECKING:
    import altair

PathLike = str | os.PathLike[str]


class PredictionView(ResultView):
    """A predicted iteration, with a 90 % interval.

    Attributes:
        prediction: all that the prediction was made from and consists of.
    """

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    @property
    def tables(self) -> tuple[str, ...]:
        return ("parts", "memory", "diagnostics", "basis")

    @property
    def breakdown(self) -> Breakdown:
        """The breakdown of the predicted iteration."""
        return self.prediction.breakdown

    @property
    def iteration_ms(self) -> float:
        """Time of the iteration in milliseconds."""
        return self.prediction.total_s * 1e3

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """The 90 % interval of the iteration time in milliseconds."""
        interval = self.breakdown.interval
        return None if interval is None else (interval.low_ns * 1e-6, interval.high_ns * 1e-6)

    @property
    def comm_fraction(self) -> float:
        """Share of the iteration that is exposed communication."""
        return self.prediction.comm_fraction

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all ranks in a second."""
        return self.prediction.tokens_per_s

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization (arXiv:2204.02311, appendix B)."""
        return self.prediction.mfu

    @property
    def memory_bytes(self) -> float:
        """Memory of the fullest rank in bytes: the upper end of its interval."""
        return float(self.prediction.memory.total)

    @property
    def least_memory_bytes(self) -> float:
        """Memory of the fullest rank in bytes with the smallest formats of the stack: the lower end."""
        return float(self.prediction.memory.least)

    @property
    def fits(self) -> bool:
        """Whether the fullest rank fits in the memory of its GPU for certain."""
        return self.prediction.fits

    @property
    def may_fit(self) -> bool:
        """Whether the fullest rank fits at least with the smallest formats of the stack."""
        return self.prediction.may_fit

    @property
    def largest_micro_batch(self) -> int | None:
        """The largest micro-batch that fits in memory. None if not even 1 fits."""
        return largest_micro_batch(self.prediction.setup)

    def _rows(self, table: str) -> Rows:
        if table == "memory":
            return [{"part": name, "bytes": size} for name, size in memory_parts(self.prediction)]
        if table == "diagnostics":
            return [d.as_row() for d in self.breakdown.diagnostics]
        if table == "basis":
            return [asdict(each) for each in basis_of(self.prediction.setup)]
        total_s = self.prediction.total_s
        return [
            {"part": name, "time_ms": spent_s * 1e3, "share": spent_s / total_s}
            for name, spent_s in iteration_parts(self.prediction)
        ]

    def chart(self) -> altair.Chart:
        """Returns a bar with the parts of the predicted iteration."""
        import altair as alt

        rows = [{"order": index, **row} for index, row in enumerate(self.rows("parts"))]
        return (
            alt.Chart(alt.InlineData(values=rows), title=f"{self.breakdown.title} (predicted)")
            .mark_bar()
            .encode(
                x=alt.X("time_ms:Q", title="ms per iteration"),
                y=alt.Y("part:N", title=None, sort=None),
                tooltip=["part:N", alt.Tooltip("time_ms:Q", format=".3f"), alt.Tooltip("share:Q", format=".1%")],
            )
            .properties(width=480)
        )

    def _headline(self) -> str:
        low_high = self.interval_ms
        interval = "" if low_high is None else f" (90 % interval {low_high[0]:.4g} to {low_high[1]:.4g} ms)"
        return (
            f"{self.breakdown.title}, predicted: iteration {self.iteration_ms:.4g} ms{interval}, "
            f"communication {self.comm_fraction:.1%}, {self.tokens_per_s:,.0f} tokens/s, "
            f"{self.prediction.fit} in memory"
        )


class SweepView(ResultView):
    """Predictions of a job for several values of one quantity.

    Attributes:
        axis: the quantity.
        points: a prediction for each value, or the reason for which there is none.
    """

    def __init__(self, axis: str, points: Sequence[Point]) -> None:
        self.axis = axis
        self.points = points

    @property
    def tables(self) -> tuple[str, ...]:
        return ("points",)

    def _rows(self, table: str) -> Rows:
        return [point.row() for point in self.points]

    def chart(self) -> altair.TopLevelMixin:
        """Returns iteration time and communication over the quantity."""
        from wirecost.report.sweep_figure import sweep_chart

        return sweep_chart(self.points, self.axis, "Predicted")

    def _headline(self) -> str:
        refused = sum(point.prediction is None for point in self.points)
        without = f", {refused} of them impossible" if refused else ""
        lines = [f"{len(self.points)} values of {self.axis}{without} (predicted)"]
        for point in self.points:
            predicted = point.prediction
            if predicted is None:
                lines.append(f"{point.label}: {point.refused}")
            else:
                time, share = f"{predicted.total_s * 1e3:.0f} ms", f"{predicted.comm_fraction:.1%}"
                fits = "" if predicted.fits else f", {predicted.fit} in memory"
                lines.append(f"{point.label}: iteration {time}, communication {share}{fits}")
        return "\n".join(lines)


class NeedView(ResultView):
    """The smallest bandwidth, micro-batch or accumulation with which communication falls to a limit.

    Attributes:
        need: the answer with the prediction that it rests on.
        now: share of communication as the job is described.
    """

    def __init__(self, need: needs.Need, now: float) -> None:
        self.need = need
        self.now = now

    @property
    def tables(self) -> tuple[str, ...]:
        return ("need",)

    @property
    def value(self) -> float | None:
        """The needed value: bits per second and node for a bandwidth, else a count. None if none suffices.

        A job on one node needs a bandwidth of 0.
        """
        return self.need.value

    @property
    def comm_fraction(self) -> float:
        """Share of communication at the needed value."""
        return self.need.reached

    @property
    def floor(self) -> float:
        """Share of communication that stays however large the value gets."""
        return self.need.floor

    def _rows(self, table: str) -> Rows:
        n = self.need
        unit = "b/s per node" if n.what == "bandwidth" else "count"
        return [
            {"of": n.what, "limit": n.limit, "value": n.value, "unit": unit, "comm_fraction": n.reached}
            | {
                "floor": n.floor,
                "now": self.now,
                "low": n.interval.low if n.interval else None,
                "high": n.interval.high if n.interval else None,
            }
        ]

    def chart(self) -> altair.Chart:
        """Returns bars of the share of communication: now, at the needed value, and the floor."""
        import altair as alt

        shares = (("now", self.now), ("with the needed value", self.comm_fraction), ("floor", self.floor))
        rows = [{"case": name, "share": share} for name, share in shares]
        return (
            alt.Chart(alt.InlineData(values=rows), title=f"Communication by {self.need.what} (predicted)")
            .mark_bar()
            .encode(
                x=alt.X("share:Q", title="share of the iteration", axis=alt.Axis(format=".0%")),
                y=alt.Y("case:N", title=None, sort=None),
            )
            .properties(width=480)
        )

    def _headline(self) -> str:
        n = self.need
        limit, now = f"{100 * n.limit:.3g} %", f"{100 * self.now:.1f} %"
        if n.value is None:
            return (
                f"no {n.what.replace('_', '-')} brings communication down to {limit}: {100 * n.floor:.1f} % stay"
            )
        if n.value == 0:
            return f"the job is on one node and needs no network; communication inside it: {now} (predicted)"
        if n.what == "bandwidth":
            value = f"{n.value / 1e9:,.4g} Gb/s a node"
        else:
            value = f"{n.what.replace('_', '-')} {n.value:.0f}"
        if self.now <= n.limit:
            return f"{limit} communication is reached already with {value}; now {now} (predicted)"
        return f"{limit} communication needs {value}; now {now} (predicted)"


def predict(workload: str | Path | Workload, **job: Unpack[JobOptions]) -> PredictionView:
    """Predicts an iteration: its parts, communication, throughput and memory, with an interval.

    Example: `wirecost.predict("llama-3-8b", cluster="dgx-h100", gpus=64).iteration_ms`

    Args:
        workload: a preset's name, a YAML file, a Hugging Face config.json, or a Workload.
        job: see `wirecost.JobOptions`.

    Raises:
        WirecostError: if a name is unknown, or the job can't exist.
    """
    return PredictionView(predict_setup(setup_of(workload, job)))


def sweep(workload: str | Path | Workload, axis: str, **job: Unpack[JobOptions]) -> SweepView:
    """Predicts a job for several values of one quantity.

    Example: `wirecost.sweep("llama-3-8b", "gpus=8..512", cluster="dgx-h100").chart()`

    Args:
        workload: see `predict`.
        axis: as `gpus=8..512`, `bandwidth=100Gb/s..1.6Tb/s` or `micro_batch=1,2,4`.
        job: see `wirecost.JobOptions`.

    Raises:
        WirecostError: if a name is unknown, or the job can't exist.
    """
    name, values = parse_axis(axis)
    base = setup_of(workload, with_first_value(job, name, values))
    return SweepView(name, sweep_setup(base, name, values))


def need(
    workload: str | Path | Workload, *, fraction: float = 0.2, of: str = "bandwidth", **job: Unpack[JobOptions]
) -> NeedView:
    """Returns the smallest bandwidth, micro-batch or accumulation with which communication falls to `fraction`.

    Args:
        workload: see `predict`.
        fraction: largest share of the iteration that may be exposed communication, between 0 and 1.
        of: `bandwidth`, `micro-batch` or `accumulation`.
        job: see `wirecost.JobOptions`.

    Raises:
        WirecostError: if a name is unknown, or the job can't exist.
    """
    solvers = {
        "bandwidth": needs.bandwidth,
        "micro-batch": needs.micro_batch,
        "accumulation": needs.accumulation,
    }
    if of not in solvers:
        raise SpecError(one_of("quantity", of, solvers))
    setup = setup_of(workload, job)
    return NeedView(needs.with_ranges(setup, solvers[of](setup, fraction)), needs.fraction(setup))
