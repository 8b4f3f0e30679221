"""The part of the page that needs no scripts: bars of the ranks, findings with their places, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wirecost.trace.answer import ms
from wirecost.trace.loads import RankLoad, loads

if TYPE_CHECKING:
    from wirecost.trace.page_data import Clock
    from wirecost.trace.places import Place
    from wirecost.trace.result import TraceSet

_PARTS = (
    ("compute", "compute only", "compute_only_ns"),
    ("overlapped", "compute and communication", "overlapped_ns"),
    ("transfer", "exposed communication: transfer", "transfer_ns"),
    ("wait", "exposed communication: wait", "wait_ns"),
    ("bubble", "exposed communication: pipeline bubble", "bubble_ns"),
    ("unsplit", "exposed communication", "unsplit_ns"),
    ("memory", "exposed copies", "memory_ns"),
    ("idle", "idle", "idle_ns"),
)
_LABEL_FROM = 0.07  # a part of the longest bar narrower than this carries no number
_MOST_ROWS, _LONGEST_CELL = 200, 300


def legend(traces: TraceSet) -> list[dict[str, str]]:
    """Returns the categories that any rank spends time in."""
    listed = loads(traces)
    return [
        {"code": code, "label": label}
        for code, label, field in _PARTS
        if any(getattr(load, field) >= 0.0005 * load.window_ns for load in listed) or code in ("compute", "idle")
    ]


def bars(traces: TraceSet) -> list[dict[str, Any]]:
    """Returns one bar for each rank, all on one scale."""
    listed = loads(traces)
    longest = max((load.window_ns for load in listed), default=0.0)
    return [_bar(load, longest, load.rank in traces.answer.ranks) for load in listed]


def _bar(load: RankLoad, longest: float, blamed: bool) -> dict[str, Any]:
    parts, words = [], []
    for code, label, field in _PARTS:
        value = getattr(load, field)
        if not load.window_ns or value < 0.0005 * load.window_ns:
            continue
        share = value / load.window_ns
        wide = value / longest if longest else 0.0
        parts.append(
            {"code": code, "width": f"{100 * wide:.3f}", "label": f"{share:.0%}" if wide >= _LABEL_FROM else ""}
        )
        words.append(f"{label} {share:.1%} ({ms(value)})")
    name = "rank ?" if load.rank is None else f"rank {load.rank}"
    return {
        "label": name,
        "blamed": blamed,
        "parts": parts,
        "time": ms(load.window_ns),
        "text": f"{name}: {', '.join(words)}",
    }


def findings(traces: TraceSet, clock: Clock) -> list[dict[str, Any]]:
    """Returns the losses of an iteration, the largest first, each with a link to its place in the time line."""
    drawn = [t for t in traces.traces if t.timeline is not None]
    rows = []
    for loss in traces.losses:
        if loss.gain_share < 0.02:
            continue
        place = None
        for number, trace in enumerate(drawn):
            if loss.place is not None and trace.rank == loss.place.rank:
                place = _placed(loss.place, number, clock.zero(trace))
                break
        rows.append(
            {
                "share": f"{loss.gain_share:.0%}",
                "text": f"{loss.text}. At most {ms(loss.gain_ns)} could be won, {loss.condition}.",
                "advice": loss.remedy,
                "place": place,
            }
        )
    return rows


def _placed(place: Place, number: int, zero: int) -> dict[str, Any]:
    return {"rank": number, "start": place.start_ns - zero, "end": place.end_ns - zero, "label": place.label}


def tables(traces: TraceSet) -> list[dict[str, Any]]:
    """Returns the tables of the command, folded away."""
    from wirecost.trace.views import VIEWS

    shown, to_note = [], bool(traces.notable_diagnostics)
    for name in (
        "collectives",
        "causes",
        "exposed",
        "skew",
        "stragglers",
        "straggler_costs",
        "iterations",
        "diagnostics",
    ):
        view = VIEWS[name](traces)
        if not view.rows:
            continue
        note = (
            f"{_MOST_ROWS} of {len(view.rows)} rows; --table {name} prints all."
            if len(view.rows) > _MOST_ROWS
            else ""
        )
        shown.append(
            {
                "title": view.title, "open": name == "diagnostics" and to_note, "note": note,
                "head": [{"text": h, "number": n >= view.text_columns} for n, h in enumerate(view.columns)],
                "rows": [[cell[:_LONGEST_CELL] for cell in row] for row in view.rows[:_MOST_ROWS]],
            }
        )  # fmt: skip
    return shown
