"""The answers to what-if questions, as text, tables, charts and files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.api.parts import PARTS, WORDS
from wirecost.api.view import ResultView, Rows
from wirecost.breakdown import Parts
from wirecost.diagnostics import Diagnostic
from wirecost.errors import WirecostError
from wirecost.units import BitsPerSecond, format_rate_bps
from wirecost.whatif.answer import WhatIf
from wirecost.whatif.results import Answer
from wirecost.whatif.sweep import Sweep

if TYPE_CHECKING:
    import altair

PathLike = str | os.PathLike[str]
_PARTS = {f"{part}_ns": WORDS[part] for part in PARTS}


class WhatIfView(ResultView):
    """The replay of a job, and answers to questions about it.

    Attributes:
        result: all that was answered.
        sweep: the iteration over a range of bandwidths. None if none was asked for.
        measured_ms: what the study measured, by question; empty for traces of one job.
        experiment: the experiment of the study whose traces were read. None for traces of one job.
    """

    def __init__(
        self,
        result: WhatIf,
        sweep: Sweep | None = None,
        measured_ms: Mapping[str, float] | None = None,
        experiment: str | None = None,
    ) -> None:
        self.result = result
        self.sweep = sweep
        self.measured_ms = dict(measured_ms or {})
        self.experiment = experiment

    @property
    def tables(self) -> tuple[str, ...]:
        return ("answers", "breakdown", "sweep") if self.sweep is not None else ("answers", "breakdown")

    @property
    def answers(self) -> Sequence[Answer]:
        """The answers, the one with all changes together first."""
        return self.result.answers

    @property
    def iteration_ms(self) -> float | None:
        """Time of the changed iteration in milliseconds. None if only an interval is known."""
        return self.result.answers[0].iteration_ms if self.result.answers else self.result.replay.iteration_ms

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """The interval of the changed iteration in milliseconds. None if nothing was changed."""
        if not self.result.answers:
            return None
        return self.result.answers[0].low_ms, self.result.answers[0].high_ms

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What makes the answers less certain."""
        found = {d.code: d for d in self.result.diagnostics}
        for answer in self.result.answers:
            found.update({d.code: d for d in answer.diagnostics})
        return list(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented JSON form (docs/how-to/whatif.md)."""
        result = self.result
        found: dict[str, Any] = {
            "replay": {
                "iteration_ms": result.replay.iteration_ms,
                "recorded_ms": result.replay.recorded_ms,
                "error": result.replay.error,
                "bound_by": result.replay.bound_by,
                "comm_fraction": result.replay.comm_fraction,
                "parts_ms": _mean_parts(result.replay.parts),
                "inferred": vars(result.counts),
                "ranks": result.ranks,
                "steps": result.steps,
            },
            "answers": [_answer_dict(answer, self.measured_ms.get(answer.question)) for answer in result.answers],
            "diagnostics": [d.as_row() for d in self.diagnostics],
        }
        if self.experiment is not None:
            found["experiment"] = self.experiment
        if result.straggler_ms:
            found["stragglers"] = {"by_rank_ms": {str(rank): cost for rank, cost in result.straggler_ms.items()}}
        if self.sweep is not None:
            found["sweep"] = {
                "points": self._rows("sweep"),
                "knee_bps": self.sweep.knee_bps,
                "floor_ms": self.sweep.floor_ms,
            }
        return found

    def _rows(self, table: str) -> Rows:
        if table == "sweep":
            assert self.sweep is not None
            return [vars(point) for point in self.sweep.points]
        if table == "breakdown":
            before = _mean_parts(self.result.replay.parts)
            after = _mean_parts(self.result.answers[0].parts) if self.result.answers else before
            return [
                {"part": _PARTS[f"{name}_ns"], "before_ms": before[name], "after_ms": after[name]}
                for name in before
            ]
        if not self.result.answers:
            replay = self.result.replay
            return [{
                "question": "as recorded", "iteration_ms": replay.iteration_ms, "low_ms": replay.iteration_ms,
                "high_ms": replay.iteration_ms, "bound_by": replay.bound_by, "comm_fraction": replay.comm_fraction,
            }]  # fmt: skip
        return [
            {
                "question": a.question, "iteration_ms": a.iteration_ms, "low_ms": a.low_ms, "high_ms": a.high_ms,
                "bound_by": a.bound_by, "comm_fraction": a.comm_fraction,
            }
            for a in self.result.answers
        ]  # fmt: skip

    def breakdown_table(self) -> tuple[list[str], list[list[str]]]:
        """Returns head and rows of the breakdown before and after."""
        changed = bool(self.result.answers)
        head = ["part", "before ms", "after ms", "change ms"] if changed else ["part", "ms"]
        body: list[list[str]] = []
        for row in self._rows("breakdown"):
            cells = [str(row["part"]), f"{row['before_ms']:.2f}"]
            if changed:
                cells += [f"{row['after_ms']:.2f}", f"{row['after_ms'] - row['before_ms']:+.2f}"]
            body.append(cells)
        return head, body

    def lines(self) -> list[str]:
        """Returns the answer in sentences, the most important one first."""
        result = self.result
        replay = result.replay
        found: list[str] = []
        for answer in result.answers:
            to = _time(answer)
            ratio = (
                f" ({replay.iteration_ms / answer.iteration_ms:.2f} times as fast)" if answer.iteration_ms else ""
            )
            found.append(
                f"{answer.question}: from {replay.iteration_ms:.1f} ms to {to}{ratio}, "
                f"bound by the {answer.bound_by}{_measured(answer, self.measured_ms.get(answer.question))}"
            )
            if answer.why_interval:
                found.append(f"An interval, because {answer.why_interval}.")
        if not result.answers:
            found.append(f"As recorded: {replay.iteration_ms:.1f} ms, bound by the {replay.bound_by}")
        if result.straggler_ms:
            costs = ", ".join(f"rank {rank} {cost:.1f} ms" for rank, cost in list(result.straggler_ms.items())[:5])
            found.append(f"Without one rank's being slower alone, an iteration saves: {costs}.")
        if self.experiment is not None:
            found.append(f"The traces are those of {self.experiment}.")
        host = result.host
        known = "the host's speed without the profiler "
        if result.job.on_processors:
            known = "processors compute as recorded"
        elif host.known:
            known += f"is {1 / host.high:.2f} times the recorded one"
        else:
            known += "is not known" if any(a.why_interval for a in result.answers) else "makes no difference here"
        found.append(
            f"Replay of the recording: {100 * replay.error:+.2f} % against {replay.recorded_ms:.1f} ms recorded "
            f"({len(result.ranks)} of {result.world} ranks, {result.steps} steps); {known}."
        )
        counts = result.counts
        found.append(
            f"Inferred waits between streams: {counts.inferred_waits}, {counts.moved_waits} moved and "
            f"{counts.refuted_waits} dropped because a step or rank refutes them; without a recorded launch: "
            f"{counts.unlaunched}; unmatched communication: {counts.unmatched}."
        )
        if abs(replay.error) > 0.03:
            found.append(
                f"The replay is more than 3 % off: {counts.unexplained_ms:.1f} ms of waiting of the device are "
                "explained by no launch, stream or collective, so a wait is missing or wrong. "
                "Only intervals are given."
            )
        if self.sweep is not None:
            knee = self.sweep.knee_bps
            found.append(
                f"The knee is at {format_rate_bps(BitsPerSecond(knee), 3)}: more bandwidth saves less than 5 %."
                if knee is not None
                else "The knee lies beyond the range: more bandwidth than its end saves over 5 %."
            )
        return found

    def chart(self) -> altair.TopLevelMixin:
        """Returns the curve of the sweep with its knee, or the breakdown before and after."""
        from wirecost.api.parts import bars
        from wirecost.api.whatif_chart import sweep_chart

        if self.sweep is not None:
            return sweep_chart(self.sweep)
        rows: list[dict[str, Any]] = []
        for row in self._rows("breakdown"):
            part = str(row["part"])
            rows.append({"run": "before", "part": part, "mean_ms": row["before_ms"]})
            rows.append({"run": "after", "part": part, "mean_ms": row["after_ms"]})
        return bars(rows, "run", "Before and after")

    def write_perfetto(self, path: PathLike) -> None:
        """Writes the timeline before and after as a file for ui.perfetto.dev.

        Raises:
            WirecostError: if the file can't be written.
        """
        from wirecost.whatif.perfetto import write_perfetto

        questions = self.result.job.asked
        write_perfetto(self.result.job, questions[0] if questions else None, Path(path))

    def write_html(self, path: PathLike) -> None:
        """Writes a page with the answer, both breakdowns and both timelines.

        Raises:
            WirecostError: if the file can't be written.
        """
        from wirecost.whatif.page import write_page

        asked = self.result.job.asked
        title = asked[0].text if asked else "as recorded"
        write_page(
            self.result.job,
            asked[0] if asked else None,
            (title, self.lines(), *self.breakdown_table()),
            Path(path),
        )

    def write_chart(self, path: PathLike) -> None:
        """Writes the chart as .svg, .png, or .json (Vega-Lite).

        Raises:
            WirecostError: for another ending, or if the file can't be written.
        """
        from wirecost.report.rendering import render

        where = Path(path)
        if where.suffix not in (".svg", ".png", ".json"):
            raise WirecostError(f"{where}: a chart is written as .svg, .png or .json")
        spec = self.chart().to_json(validate=False)
        drawn = spec.encode()
        if where.suffix != ".json":
            (drawn,) = render([(spec, "svg" if where.suffix == ".svg" else "png")])
        try:
            where.write_bytes(drawn)
        except OSError as error:
            raise WirecostError(f"{where}: can't be written: {error.strerror}") from error

    def _headline(self) -> str:
        return "\n".join(self.lines())


def _time(answer: Answer) -> str:
    if answer.iteration_ms is not None:
        return f"{answer.iteration_ms:.1f} ms"
    return f"{answer.low_ms:.1f} to {answer.high_ms:.1f} ms"


def _mean_parts(parts: Sequence[Parts]) -> dict[str, float]:
    if not parts:
        return {name.removesuffix("_ns"): 0.0 for name in _PARTS}
    return {name.removesuffix("_ns"): sum(getattr(p, name) for p in parts) / len(parts) * 1e-6 for name in _PARTS}


def _measured(answer: Answer, measured_ms: float | None) -> str:
    if measured_ms is None:
        return ""
    text = f"; the study measured {measured_ms:.1f} ms"
    return text if answer.iteration_ms is None else f"{text} ({answer.iteration_ms / measured_ms - 1:+.1%})"


def _answer_dict(answer: Answer, measured_ms: float | None = None) -> dict[str, Any]:
    found = {} if measured_ms is None else {"measured_ms": measured_ms}
    return found | {
        "question": answer.question,
        "iteration_ms": answer.iteration_ms,
        "low_ms": answer.low_ms,
        "high_ms": answer.high_ms,
        "bound_by": answer.bound_by,
        "comm_fraction": answer.comm_fraction,
        "why_interval": answer.why_interval,
        "parts_ms": _mean_parts(answer.parts),
    }
