"""The plans that were run: predicted beside measured times, and the conclusion."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
"""Version of the JSON document (docs/reference/schemas/measured-plans.json)."""


@dataclass
class Measured:
    """One plan that was run.

    Attributes:
        place: its place in the search.
        label: the plan.
        predicted_s, measured_s: iteration times in seconds; None if it could not be run.
        status: how the run ended.
        reason: why it was not measured. Empty if it was.
    """

    place: int
    label: str
    predicted_s: float
    measured_s: float | None
    status: str
    reason: str = ""


@dataclass
class MeasuredPlans:
    """The plans that were run.

    Attributes:
        measured: the plans in the order in which they were run.
        left: number of further plans that could not be the fastest, and were not run.
        out: where the results are.
        notes: what limits the comparison.
        table: the measured times as a table for `wirecost calibrate`. None where the ranks ran on CPUs, which no
            table describes.
    """

    out: Path
    table: Path | None = None
    measured: list[Measured] = field(default_factory=list)
    left: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> Measured | None:
        """The fastest measured plan."""
        done = [each for each in self.measured if each.measured_s is not None]
        return min(done, key=lambda each: each.measured_s or math.inf) if done else None

    def rows(self) -> list[dict[str, Any]]:
        """Returns a row for each plan that was run."""
        return [
            {
                "plan": number,
                "label": each.label,
                "predicted_s": each.predicted_s,
                "measured_s": each.measured_s,
                "error": None if each.measured_s is None else each.predicted_s / each.measured_s - 1,
                "status": each.status,
                "reason": each.reason or None,
            }
            for number, each in enumerate(self.measured, 1)
        ]

    def lines(self) -> list[str]:
        """Returns the conclusion as lines of text."""
        best = self.best
        lines = ["No plan could be measured."] if best is None else [f"Fastest measured: {best.label}"]
        lines += [f"Plan {n}: {each.reason}" for n, each in enumerate(self.measured, 1) if each.reason]
        if self.left:
            plans = "1 further plan that was" if self.left == 1 else f"{self.left} further plans that were"
            lines.append(f"{plans} not run can't be faster than the fastest measured.")
        lines += self.notes
        lines.append(f"Results: {self.out}, a study for each plan")
        if self.table is not None:
            lines.append(f"Predictions learn from them: wirecost calibrate {self.table} --save mine.yaml")
        return lines

    def document(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        best = self.best
        return {
            "schema_version": SCHEMA_VERSION,
            "plans": self.rows(),
            "best": None if best is None else best.label,
            "not_run": self.left,
            "out": str(self.out),
            "table": None if self.table is None else str(self.table),
            "notes": self.notes,
        }
