"""Leaves out events that a jump of the clock moved hours or days away from all other events of their file.

A profile is recorded in one run. If consecutive events are more than `MOST_GAP_NS` apart, the clock was set or a
time was damaged. Including such events would create an iteration of days with an idle GPU.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.recorded import Columns, Recorded

MOST_GAP_NS = 3_600 * 10**9
LONGEST_EVENT_NS = 24 * MOST_GAP_NS

Span = tuple[int, int]


def without_jumps(recorded: Recorded, diagnostics: DiagnosticCounts) -> Recorded:
    """Returns the part of a recording with the most device events that has no gap of more than `MOST_GAP_NS`.

    In a run without a device, host events count instead. Events outside the part are counted as `clock_jump`, with
    the first of them as an example.
    """
    starts, ends, names = _spans(recorded)
    if len(starts) == 0:
        return recorded
    first, last = _largest_part(starts, ends)
    limits = (first - MOST_GAP_NS, last + MOST_GAP_NS)
    away = (starts < limits[0]) | (ends > limits[1])
    outliers = [(names(int(row)), int(starts[row])) for row in np.flatnonzero(away)]
    changes: dict[str, Any] = {}
    for field in fields(recorded):
        value: Any = getattr(recorded, field.name)
        if isinstance(value, list):
            inside = [item for item in value if _inside(_span(item), limits)]
            if value is not recorded.cpu_ops and len(recorded.device.start_ns):
                outliers += [(item.name, item.start_ns) for item in value if not _inside(_span(item), limits)]
            changes[field.name] = inside
        elif hasattr(value, "start_ns"):  # a table of columns
            changes[field.name] = _masked(value, limits)
        elif field.name in ("record_start_ns", "record_end_ns") and value is not None:
            changes[field.name] = value if _inside((value, value), limits) else None
    if not outliers:
        # The marks of the recording itself may be at any time: no time is counted by them.
        return replace(recorded, **{name: changes[name] for name in changes if name.startswith("record_")})
    name, start = outliers[0]
    diagnostics.add(
        "clock_jump", len(outliers), detail=f"for example '{name[:80]}', {_distance(start, first, last)}"
    )
    return replace(recorded, **changes)


def _spans(recorded: Recorded) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]:
    """Returns the starts and ends of the device events, and a function that names an event by its row.

    In a run without a device, these are host events.
    """
    device = recorded.device
    if len(device.start_ns):
        return device.start_ns, device.end_ns, lambda row: device.names[device.name[row]]
    spans = [(a.start_ns, a.end_ns, a.name) for a in recorded.cpu_annotations]
    spans += [(start, end, "a CPU operator") for start, end in recorded.cpu_ops]
    times = np.array([(start, end) for start, end, _ in spans], dtype=np.int64).reshape(-1, 2)
    return times[:, 0], times[:, 1], lambda row: spans[row][2]


def _largest_part(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Span:
    """Returns the start and end of the part with the most events, the longest or else the first of several."""
    sound = np.flatnonzero(ends - starts <= LONGEST_EVENT_NS)
    if len(sound) == 0:
        return int(starts.min()), int(starts.min()) + LONGEST_EVENT_NS
    order = sound[np.argsort(starts[sound], kind="stable")]
    reached = np.maximum.accumulate(ends[order])
    cuts = np.flatnonzero(starts[order][1:] - reached[:-1] > MOST_GAP_NS) + 1
    parts = [
        (len(rows), int(ends[rows].max() - starts[rows].min()), -number, rows)
        for number, rows in enumerate(np.split(order, cuts))
    ]
    rows = max(parts, key=lambda part: part[:3])[3]
    return int(starts[rows].min()), int(ends[rows].max())


def _span(item: Any) -> Span:
    return item if isinstance(item, tuple) else (item.start_ns, item.end_ns)


def _inside(span: Span, limits: Span) -> bool:
    return span[0] >= limits[0] and span[1] <= limits[1]


def _masked(table: Any, limits: Span) -> Any:
    """Returns a dataclass of columns with the rows that lie inside `limits`."""
    keep = (table.start_ns >= limits[0]) & (table.end_ns <= limits[1])
    if keep.all():
        return table
    columns: dict[str, Any] = {
        field.name: value[keep]
        for field in fields(table)
        if isinstance(value := getattr(table, field.name), np.ndarray) and len(value) == len(keep)
    }
    if isinstance(table, Columns):
        renumbered = np.cumsum(keep) - 1
        columns["calls"] = {int(renumbered[row]): call for row, call in table.calls.items() if keep[row]}
    return replace(table, **columns)


def _distance(start: int, first: int, last: int) -> str:
    away = first - start if start < first else max(start - last, 0)
    hours = away / MOST_GAP_NS
    length = f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"
    return f"{length} {'before' if start < first else 'after'} the others" if away else "which lasts days"
