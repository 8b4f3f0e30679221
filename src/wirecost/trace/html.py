"""The time line as one HTML file: all ranks stacked, zoomable, exposed communication marked; works offline."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wirecost._version import __version__
from wirecost.breakdown.intervals import Intervals
from wirecost.trace.source import TraceError

if TYPE_CHECKING:
    from wirecost.trace.match import Int64
    from wirecost.trace.rank import RankTrace
    from wirecost.trace.result import TraceSet

# Calls that a rank's tooltips know: the longest; a page with all calls of a long trace would be too large to open.
_MAX_CALLS = 2000


def write_html(traces: TraceSet, path: Path) -> None:
    """Writes the page. `traces` must have been read with `timeline=True`.

    Raises:
        TraceError: where there is nothing to draw, or the file can't be written.
    """
    try:
        path.write_text(render_html(traces), encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error


def render_html(traces: TraceSet) -> str:
    """The page as text. Everything that comes from a trace is data in it: escaped, and only ever shown as text."""
    import jinja2

    drawn = [(t, w) for t, w in zip(traces.traces, traces.waits, strict=True) if t.timeline is not None]
    if not drawn:
        raise TraceError("no time line to draw: no device events, or read without timeline=True")
    common = all(t.absolute_clock for t, _ in drawn) or len(drawn) == 1
    zero = min(_first(t) for t, _ in drawn)
    names: dict[str, int] = {}
    ranks = [_rank(t, w, zero if common else _first(t), names) for t, w in drawn]
    data = {"ranks": ranks, "names": list(names), "end": max(r["end"] for r in ranks)}
    note = ""
    if not common:
        note = "The ranks' clocks have no common base: each rank starts at its own zero. "
    if any(t.timeline is not None and t.timeline.gap_ns for t, _ in drawn):
        gap = max(t.timeline.gap_ns for t, _ in drawn if t.timeline is not None)
        note += f"Drawn with gaps shorter than {gap} ns closed; the numbers above are exact. "
    template = (resources.files("wirecost.trace") / "timeline.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        summary=traces.summary, data=_script_json(data), note=note, version=__version__
    )


def _script_json(data: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or opens another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for harmful in "<>&\u2028\u2029":
        text = text.replace(harmful, f"\\u{ord(harmful):04x}")
    return text


def _first(trace: RankTrace) -> int:
    return min([trace.start_ns, *(i.window.start_ns for i in trace.iterations)])


def _coded(intervals: Intervals, origin_ns: int) -> list[int]:
    """[gap, length, gap, length, ...]: half the size of absolute times."""
    edges = np.concatenate([[origin_ns], intervals.reshape(-1)])
    return np.diff(edges).tolist()


def _rank(trace: RankTrace, waits: Int64, zero: int, names: dict[str, int]) -> dict[str, Any]:
    line, calls = trace.timeline, trace.calls
    assert line is not None
    longest = np.sort(np.argsort(calls.start_ns - calls.end_ns, kind="stable")[:_MAX_CALLS])
    end = max([trace.end_ns, *(i.window.end_ns for i in trace.iterations)])
    return {
        "label": "rank ?" if trace.rank is None else f"rank {trace.rank}",
        "file": Path(trace.file).name,
        "origin": 0,
        "start": trace.start_ns - zero,
        "end": end - zero,
        "steps": [
            {"name": i.window.name, "start": i.window.start_ns - zero, "end": i.window.end_ns - zero}
            for i in trace.iterations
        ],
        "calls": [
            [
                int(calls.start_ns[i]) - zero,
                int(calls.end_ns[i] - calls.start_ns[i]),
                names.setdefault(calls.ops[calls.op[i]], len(names)),
                names.setdefault(calls.groups[calls.group[i]], len(names)),
                int(calls.exposed_ns[i]),
                int(waits[i]),
            ]
            for i in longest
        ],
        **{kind: _coded(getattr(line, kind), zero) for kind in ("compute", "overlapped", "exposed", "memory")},
    }
