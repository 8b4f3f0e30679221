"""Breakdowns and comparisons of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.api.parts import bars, collective_rows, iteration_rows, part_rows
from wirecost.api.view import ResultView, Rows
from wirecost.breakdown import Breakdown, Share, Spread
from wirecost.comparison.breakdowns import compare as compare_breakdowns
from wirecost.comparison.result import Comparison
from wirecost.comparison.sources import is_experiment, is_study, load_breakdown

if TYPE_CHECKING:
    import altair

    from wirecost.api.studies import StudyResults
    from wirecost.api.traces import Traces

PathLike = str | os.PathLike[str]


class BreakdownView(ResultView):
    """The breakdown of an iteration, whatever it comes from.

    Attributes:
        breakdown: the breakdown itself, with every raw sample.
    """

    def __init__(self, breakdown: Breakdown) -> None:
        self.breakdown = breakdown

    @property
    def tables(self) -> tuple[str, ...]:
        return ("parts", "iterations", "collectives")

    @property
    def iteration_ms(self) -> float | None:
        """Median of the slowest rank's iteration time in milliseconds. None if it is unknown."""
        return _median(self.breakdown.iteration_ns(), 1e-6)

    @property
    def comm_fraction(self) -> float | None:
        """Share of the iteration that is exposed communication: the median over iterations. None if it is unknown,
        and if only an interval is known (`breakdown.share("exposed_comm_ns")`).
        """
        share = self.breakdown.share("exposed_comm_ns")
        return share.point if share else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of all ranks in a second. None if it is unknown."""
        return self.breakdown.tokens_per_s()

    def _rows(self, table: str) -> Rows:
        builders = {"parts": part_rows, "iterations": iteration_rows, "collectives": collective_rows}
        return builders[table](self.breakdown)

    def chart(self) -> altair.Chart:
        """Returns a bar with the parts of the mean iteration."""
        title = self.breakdown.title
        return bars([{"run": title, **row} for row in part_rows(self.breakdown)], "run", f"Breakdown of {title}")

    def _headline(self) -> str:
        return (
            f"{self.breakdown.title} ({self.breakdown.source}): "
            f"{_numbers(self.iteration_ms, self.breakdown.share('exposed_comm_ns'))}"
        )


class ComparisonView(ResultView):
    """Two runs side by side.

    Attributes:
        comparison: all that the comparison says. `comparison.summary` has it in words.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def tables(self) -> tuple[str, ...]:
        return ("parts", "collectives")

    @property
    def speedup(self) -> float | None:
        """Median iteration time before over after. It is above 1 if the second run is faster, None if unknown."""
        ratio = self.comparison.speedup
        return None if ratio is None else ratio.value

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `speedup`. None if `speedup` is unknown."""
        ratio = self.comparison.speedup
        return None if ratio is None else (ratio.low, ratio.high)

    def _rows(self, table: str) -> Rows:
        c = self.comparison
        if table == "collectives":
            return [vars(row) for row in c.collectives]
        return [
            {
                "part": p.part.removesuffix("_ns"),
                "before_ms": None if p.before_ns is None else p.before_ns * 1e-6,
                "after_ms": None if p.after_ns is None else p.after_ns * 1e-6,
                "change_ms": None if p.change_ns is None else p.change_ns * 1e-6,
                "before_share": p.before_share,
                "after_share": p.after_share,
                "before_share_low": p.before_share_low,
                "before_share_high": p.before_share_high,
                "after_share_low": p.after_share_low,
                "after_share_high": p.after_share_high,
            }
            for p in c.parts
        ]

    def chart(self) -> altair.Chart:
        """Returns two bars with the parts of the mean iteration, before and after."""
        from wirecost.api.parts import WORDS

        rows: list[dict[str, Any]] = []
        for p in self.comparison.parts:
            part = WORDS[p.part.removesuffix("_ns")]
            for run, mean_ns in (("before", p.before_ns), ("after", p.after_ns)):
                if mean_ns is not None:
                    rows.append({"run": run, "part": part, "mean_ms": mean_ns * 1e-6})
        return bars(rows, "run", f"{self.comparison.before_title} and {self.comparison.after_title}")

    def _headline(self) -> str:
        return "\n".join(self.comparison.summary)


def load(path: PathLike) -> BreakdownView | StudyResults:
    """Returns what lies at a path: a study's results, or the breakdown of an experiment, a file or traces.

    Args:
        path: a study's directory, an experiment's directory, a breakdown's JSON file, or traces.

    Raises:
        WirecostError: if it is none of them, or is damaged.
    """
    if is_study(Path(path)) and not is_experiment(Path(path)):
        from wirecost.api.studies import read_study

        return read_study(path)
    return BreakdownView(load_breakdown(os.fspath(path)))


def compare(before: PathLike | BreakdownView | Traces, after: PathLike | BreakdownView | Traces) -> ComparisonView:
    """Compares two runs by the medians of their iterations and the means of their parts.

    Args:
        before, after: a path that `load` takes, or a result that has a breakdown.

    Raises:
        WirecostError: if a path can't be read, or the runs can't be compared.
    """
    return ComparisonView(compare_breakdowns(_breakdown(before), _breakdown(after)))


def _breakdown(source: PathLike | BreakdownView | Traces) -> Breakdown:
    if isinstance(source, str | os.PathLike):
        return load_breakdown(os.fspath(source))
    return source.breakdown


def _median(spread: Spread | None, factor: float) -> float | None:
    return None if spread is None else spread.median * factor


def _numbers(iteration_ms: float | None, exposed: Share | None) -> str:
    time = "unknown" if iteration_ms is None else f"{iteration_ms:.4g} ms"
    return f"iteration {time}, communication {exposed.text() if exposed else 'unknown'}"
