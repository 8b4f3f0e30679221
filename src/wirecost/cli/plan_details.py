"""Prints where two plans differ, and plans that were measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from wirecost.cli.output import console, percent, safe, table
from wirecost.cli.show import seconds
from wirecost.units import format_size_bytes

if TYPE_CHECKING:
    from wirecost.planner.explain import Explanation

_SMALL = 1e-9


def show_explanation(explanation: Explanation, format: str = "text") -> None:
    """Prints where two plans differ, part by part."""
    out = console(format)
    before = sum(part.first for part in explanation.times)
    after = sum(part.second for part in explanation.times)
    ratio, width = after / before, explanation.half_width
    out.print(f"A  {safe(explanation.first.label)}: {seconds(before)}", soft_wrap=True)
    out.print(f"B  {safe(explanation.second.label)}: {seconds(after)}", soft_wrap=True)
    verdict = "the model can't tell them apart" if abs(math.log(ratio)) <= width else "the model tells them apart"
    out.print(
        f"B takes {ratio:.3f} times as long, 90 % interval {ratio * math.exp(-width):.2f} to "
        f"{ratio * math.exp(width):.2f}: {verdict}.",
        soft_wrap=True,
    )
    body = [[name, first, second] for name, first, second in explanation.choices]
    out.print(table("Choices that differ", ["choice", "A", "B"], body))
    body = [
        [part.name, seconds(part.first), seconds(part.second), _signed(part.more), part.cause]
        for part in explanation.times
    ]
    out.print(table("Parts of the iteration", ["part", "A", "B", "B - A", "decided by"], body))
    body = [
        [part.name, format_size_bytes(part.first), format_size_bytes(part.second)] for part in explanation.memory
    ]
    out.print(table("Memory of the fullest rank", ["part", "A", "B"], body))


def _signed(value_s: float) -> str:
    if abs(value_s) < _SMALL:
        return "0"
    return f"{'+' if value_s > 0 else '-'}{seconds(abs(value_s))}"


def show_measured(result: Any, format: str = "text") -> None:
    """Prints predicted beside measured times of plans that were run."""
    out = console(format)
    body = [
        [
            str(row["plan"]),
            row["label"],
            seconds(row["predicted_s"]),
            "-" if row["measured_s"] is None else seconds(row["measured_s"]),
            percent(row["error"], sign=True),
            row["status"],
        ]
        for row in result.rows()
    ]
    out.print(
        table("Plans predicted and measured", ["plan", "choices", "predicted", "measured", "error", ""], body)
    )
    for line in result.lines():
        out.print(f"  {safe(line)}", soft_wrap=True)
