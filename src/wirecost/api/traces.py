"""Profiler traces."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.api.parts import PARTS, WORDS, bars
from wirecost.api.view import ResultView, Rows
from wirecost.breakdown import Breakdown
from wirecost.errors import WirecostError
from wirecost.trace.answer import Answer
from wirecost.trace.loads import exposed_share, loads
from wirecost.trace.result import TraceSet
from wirecost.units import parse_time_s

if TYPE_CHECKING:
    import altair


class Traces(ResultView):
    """Profiler traces of one or several ranks of a job.

    Attributes:
        trace_set: all that the traces say, with methods for further tables.
    """

    def __init__(self, trace_set: TraceSet) -> None:
        self.trace_set = trace_set

    @property
    def tables(self) -> tuple[str, ...]:
        from wirecost.trace.tables import NAMES

        return NAMES

    @property
    def answer(self) -> Answer:
        """The iteration, the communication, the cause, the possible gain and the next step, in words."""
        return self.trace_set.answer

    @property
    def breakdown(self) -> Breakdown:
        """The breakdown of the iterations."""
        return self.trace_set.breakdown

    @property
    def iteration_ms(self) -> float | None:
        """Median of the slowest rank's iteration time in milliseconds. None if no iterations are known."""
        spread = self.breakdown.iteration_ns()
        return None if spread is None else spread.median * 1e-6

    @property
    def comm_fraction(self) -> float | None:
        """Share of the iteration that is exposed communication, as in the answer. None if it is unknown.

        It is that of the mean iteration. `breakdown.comm_fraction()` has the median over iterations.
        """
        return exposed_share(loads(self.trace_set))

    def _rows(self, table: str) -> Rows:
        from wirecost.trace.tables import frame

        return frame(self.trace_set, table).to_dicts()

    def chart(self) -> altair.Chart:
        """Returns a bar for each rank with the parts of its mean iteration."""
        rows: list[dict[str, Any]] = []
        for load in loads(self.trace_set):
            spent_ns = {
                "compute_only": load.compute_only_ns,
                "overlapped": load.overlapped_ns,
                "exposed_comm": load.exposed_ns,
                "exposed_memory": load.memory_ns,
                "idle": load.idle_ns,
            }
            rank = "rank unknown" if load.rank is None else f"rank {load.rank}"
            rows += [{"rank": rank, "part": WORDS[part], "mean_ms": spent_ns[part] * 1e-6} for part in PARTS]
        return bars(rows, "rank", "Mean iteration of each rank")

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML file with the answer, the ranks, and a time line if it was read with `timeline=True`.

        Raises:
            WirecostError: if the file can't be written, or the traces were read without their time line.
        """
        from wirecost.trace.html import render_html

        page = render_html(self.trace_set)
        try:
            Path(path).write_text(page, encoding="utf-8")
        except OSError as error:
            raise WirecostError(f"{os.fspath(path)}: can't be written: {error.strerror or error}") from error

    def _headline(self) -> str:
        return "\n".join(f"{label}: {sentence}" for label, sentence in self.answer.lines)


def read_traces(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    window: str = "auto",
    comm_patterns: Iterable[str] = (),
    step_time: str | float | None = None,
    timeline: bool = False,
    jobs: int | None = None,
) -> Traces:
    """Reads profiler traces: files, directories or globs of .json, .json.gz, .json.zst or Nsight's .sqlite.

    Args:
        window: where iterations come from: `auto`, `launches`, `gpu`, `cpu`, `whole` or `name:REGEX`.
        comm_patterns: regular expressions of event names that are communication too.
        step_time: the step time that the job itself reports, as `238 ms` or in seconds.
        timeline: whether the time line is kept that `write_html` draws.
        jobs: number of worker processes. The default is one for each core.

    Raises:
        WirecostError: if the paths hold no traces that can be read.
    """
    from wirecost.trace import read

    if isinstance(step_time, str):
        try:
            step_time = parse_time_s(step_time)
        except ValueError as error:
            raise WirecostError(f"step_time: {error}") from error
    return Traces(
        read(
            paths,
            window=window,
            comm_patterns=comm_patterns,
            jobs=jobs,
            timeline=timeline,
            step_time_ns=None if step_time is None else round(step_time * 1e9),
        )
    )
