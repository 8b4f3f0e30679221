"""The parts of an iteration as rows and as a chart, for every result that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wirecost.breakdown import Breakdown

if TYPE_CHECKING:
    import altair

PARTS = ("compute_only", "overlapped", "exposed_comm", "exposed_memory", "idle")
WORDS = {
    "compute_only": "compute only",
    "overlapped": "compute that hides communication",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed copies",
    "idle": "idle",
}
COLOURS = ("#4c78a8", "#72b7b2", "#e45756", "#f2cf5b", "#d9d9d9")


def iteration_rows(breakdown: Breakdown) -> list[dict[str, Any]]:
    """Returns a row for each iteration of each rank, with its parts in nanoseconds."""
    return [
        {
            "rank": i.rank,
            "iteration": i.name,
            "start_ns": i.start_ns,
            "window_ns": i.parts.window_ns,
            **{f"{part}_ns": getattr(i.parts, f"{part}_ns") for part in PARTS},
        }
        for i in breakdown.iterations
    ]


def part_rows(breakdown: Breakdown) -> list[dict[str, Any]]:
    """Returns a row for each part: its mean in milliseconds per iteration and rank, and its share of an iteration
    as `Breakdown.share` has it. None is unknown. A share that is an interval is unknown but has bounds.
    """
    known = all(i.parts.known for i in breakdown.iterations)
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        spent_ns = [getattr(i.parts, f"{part}_ns") for i in breakdown.iterations]
        share = breakdown.share(f"{part}_ns")
        rows.append(
            {
                "part": WORDS[part],
                "mean_ms": sum(spent_ns) / len(spent_ns) * 1e-6 if spent_ns and known else None,
                "share": share.point if share else None,
                "share_low": share.low if share else None,
                "share_high": share.high if share else None,
            }
        )
    return rows


def collective_rows(breakdown: Breakdown) -> list[dict[str, Any]]:
    """Returns a row for each operation in each group of each rank."""
    return [c.model_dump(mode="json") for c in breakdown.collectives]


def bars(rows: Sequence[dict[str, Any]], label: str, title: str) -> altair.Chart:
    """Returns stacked bars of the parts.

    Args:
        rows: with a name in the column `label`, a part in `part` and milliseconds in `mean_ms`.
        label: the column that names a bar.
    """
    import altair as alt

    order = {WORDS[part]: index for index, part in enumerate(PARTS)}
    data = [{**row, "order": order[row["part"]]} for row in rows if row["mean_ms"] is not None]
    return (
        alt.Chart(alt.InlineData(values=data), title=title)
        .mark_bar()
        .encode(
            x=alt.X("mean_ms:Q", title="ms per iteration"),
            y=alt.Y(f"{label}:N", title=None, sort=None),
            color=alt.Color(
                "part:N", title=None, scale=alt.Scale(domain=list(WORDS.values()), range=list(COLOURS))
            ),
            order=alt.Order("order:Q"),
            tooltip=[f"{label}:N", "part:N", alt.Tooltip("mean_ms:Q", format=".3f")],
        )
        .properties(width=480)
    )
