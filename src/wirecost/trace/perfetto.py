"""Writes the traces with breakdown, waits and causes as further tracks, for ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.trace.chrome_trace import write_events
from wirecost.trace.originals import Rows, originals
from wirecost.trace.outputs import refuse_input
from wirecost.trace.page_data import nothing_to_draw
from wirecost.trace.source import TraceError
from wirecost.trace.tracks import tracks

if TYPE_CHECKING:
    from wirecost.trace.result import TraceSet


def write_perfetto(traces: TraceSet, path: Path) -> int:
    """Writes the original events of all files on one clock, and wirecost's tracks above those of each rank.

    `traces` must have been read with `timeline=True`. The file is compressed if its name ends in `.gz`. Returns
    the number of events written.

    Raises:
        TraceError: if there is nothing to draw, the file can't be written, or it is one of the traces.
    """
    if all(t.timeline is None for t in traces.traces):
        raise TraceError(nothing_to_draw(traces))
    refuse_input([t.file for t in traces.traces], path)
    return write_events(path, _events(traces), answer=dict(traces.answer.lines))


def _events(traces: TraceSet) -> Iterator[dict[str, Any]]:
    rows = Rows()
    yield from tracks(traces, rows)
    yield from originals(traces, rows)
    yield from rows.metadata()
