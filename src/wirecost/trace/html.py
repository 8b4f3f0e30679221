"""The page: the answer, the ranks by category, and a time line to zoom, search and sum up; works offline."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost._version import __version__
from wirecost.diagnostics import lines_of
from wirecost.trace.outputs import write_text
from wirecost.trace.page_data import page_data
from wirecost.trace.page_tables import bars, findings, legend, tables

if TYPE_CHECKING:
    from wirecost.trace.result import TraceSet

_SCRIPTS = ("model.js", "draw.js", "controls.js", "search.js")


def write_html(traces: TraceSet, path: Path) -> None:
    """Writes the page. `traces` must have been read with `timeline=True`.

    Raises:
        TraceError: if there is nothing to draw, the file can't be written, or it is one of the traces.
    """
    write_text([t.file for t in traces.traces], path, render_html(traces))


def render_html(traces: TraceSet) -> str:
    """Returns the page as text. Everything from a trace is escaped, and the page shows it as text only.

    Raises:
        TraceError: if there is no time line to draw.
    """
    import jinja2

    data, clock, note = page_data(traces)
    answer = traces.answer
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_file("page.html")).render(
        title=traces.breakdown.title,
        headline=_headline(answer.brief[2]),
        answer=[line for line in answer.lines if line[0] != "Cause"] + _stragglers(traces),
        diagnostics=[(d.severity.value, lines_of(d)) for d in traces.notable_diagnostics],
        bars=bars(traces),
        legend=legend(traces),
        bars_note=_bars_note(traces),
        findings=findings(traces, clock),
        tables=tables(traces),
        data=_script_json(data),
        note=note,
        version=__version__,
        css=_file("page.css"),
        js="\n".join(_file(name) for name in _SCRIPTS),
    )


def _file(name: str) -> str:
    return (resources.files("wirecost.trace") / "page" / name).read_text(encoding="utf-8")


def _headline(cause: str) -> str:
    return cause[:1].upper() + cause[1:]


def _stragglers(traces: TraceSet) -> list[tuple[str, str]]:
    return [("Stragglers", traces.straggler_costs.sentence)] if traces.world_size > 1 else []


def _bars_note(traces: TraceSet) -> str:
    marked = any(t.iterations for t in traces.traces)
    return (
        "Means per iteration; the length of a bar is the time that an iteration takes."
        if marked
        else "The recorded window of each rank."
    )


def _script_json(data: Any) -> str:
    """Returns JSON that is safe in a script element: nothing in it ends the element or opens another one."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for harmful in "<>&\u2028\u2029":
        text = text.replace(harmful, f"\\u{ord(harmful):04x}")
    return text
