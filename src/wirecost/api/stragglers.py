"""Stragglers of a job, from a table of its operations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wirecost.api.view import ResultView, Rows
from wirecost.whatif.stragglers import Stragglers
from wirecost.whatif.stragglers import stragglers as read_stragglers

if TYPE_CHECKING:
    import altair

PathLike = str | os.PathLike[str]


class StragglersView(ResultView):
    """What stragglers cost in a job.

    Attributes:
        result: all that was found, step by step too.
    """

    def __init__(self, result: Stragglers) -> None:
        self.result = result

    @property
    def tables(self) -> tuple[str, ...]:
        return ("costs", "steps")

    @property
    def slowdown(self) -> float:
        """Mean step over the mean step without stragglers. It is 1 if they cost nothing."""
        return self.result.slowdown

    @property
    def iteration_ms(self) -> float:
        """Mean step without stragglers in milliseconds."""
        return _mean_ms(self.result.ideal_s)

    def _rows(self, table: str) -> Rows:
        result = self.result
        if table == "steps":
            return [
                {
                    "step": step, "recorded_s": result.recorded_s[step], "step_s": result.step_s[step],
                    "ideal_s": result.ideal_s[step], "slowdown": result.by_step[step],
                }
                for step in result.recorded_s
            ]  # fmt: skip
        parts = {
            "data-parallel rank": result.by_dp_rank,
            "pipeline stage": result.by_stage,
            "operation": result.by_operation,
        }
        return [
            {"of": of, "name": str(name), "slowdown": cost}
            for of, costs in parts.items()
            for name, cost in costs.items()
        ]

    def lines(self) -> list[str]:
        """Returns the answer in sentences."""
        result = self.result
        rank, stage = next(iter(result.by_dp_rank)), next(iter(result.by_stage))
        kind = next(iter(result.by_operation))
        return [
            f"No straggler: from {_mean_ms(result.step_s):.1f} ms to {self.iteration_ms:.1f} ms, stragglers make "
            f"the iteration {result.slowdown:.3f} times as long ({len(result.step_s)} steps).",
            f"Most of it: data-parallel rank {rank} ({result.by_dp_rank[rank]:.3f}), stage {stage} "
            f"({result.by_stage[stage]:.3f}), {kind} ({result.by_operation[kind]:.3f}).",
            f"Replay: {100 * (_mean_ms(result.step_s) / _mean_ms(result.recorded_s) - 1):+.2f} % against the "
            "recording, without what the host delays.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented JSON form (docs/how-to/whatif.md)."""
        result = self.result
        step_ms, recorded_ms = _mean_ms(result.step_s), _mean_ms(result.recorded_s)
        return {
            "replay": {"iteration_ms": step_ms, "recorded_ms": recorded_ms, "error": step_ms / recorded_ms - 1},
            "answers": [
                {
                    "question": "no straggler", "iteration_ms": self.iteration_ms, "low_ms": self.iteration_ms,
                    "high_ms": self.iteration_ms, "bound_by": "device", "comm_fraction": None,
                }
            ],
            "stragglers": {
                "slowdown": result.slowdown,
                "by_dp_rank": {str(k): v for k, v in result.by_dp_rank.items()},
                "by_stage": {str(k): v for k, v in result.by_stage.items()},
                "by_operation": result.by_operation,
                "by_step": {str(k): v for k, v in result.by_step.items()},
                "recorded_s": {str(k): v for k, v in result.recorded_s.items()},
                "step_s": {str(k): v for k, v in result.step_s.items()},
                "ideal_s": {str(k): v for k, v in result.ideal_s.items()},
            },
        }  # fmt: skip

    def chart(self) -> altair.TopLevelMixin:
        """Returns a bar for each rank, stage and kind of operation."""
        import altair as alt

        rows = [{**row, "label": f"{row['of']} {row['name']}"} for row in self.rows()]
        return (
            alt.Chart(alt.InlineData(values=rows), title="Slowdown by stragglers")
            .mark_bar()
            .encode(x=alt.X("slowdown:Q", title="slowdown"), y=alt.Y("label:N", sort="-x", title=None))
        )

    def _headline(self) -> str:
        return "\n".join(self.lines())


def stragglers(path: PathLike) -> StragglersView:
    """Returns what stragglers cost in a job, from a Parquet table of its operations.

    Raises:
        WirecostError: if the table can't be read or isn't whole.
    """
    return StragglersView(read_stragglers(Path(path)))


def _mean_ms(seconds: dict[int, float]) -> float:
    return float(np.mean(list(seconds.values()))) * 1e3
