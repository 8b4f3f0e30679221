"""The page of a what-if question: the answer, both breakdowns and both timelines, in one file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wirecost.breakdown.intervals import merge
from wirecost.trace.outputs import write_text
from wirecost.whatif.perfetto import before_and_after
from wirecost.whatif.timeline import COMMUNICATION, COMPUTE, COPY, ON_HOST, Piece

if TYPE_CHECKING:
    from wirecost.whatif.job import Job
    from wirecost.whatif.question import Question

_COLOURS = {COMPUTE: "#4c78a8", COMMUNICATION: "#e45756", COPY: "#72b7b2", ON_HOST: "#9d9d9d"}
_WIDTH, _HEIGHT, _GAP = 1000, 14, 4
_MOST_RANKS = 16
_MOST_RECTANGLES = 3000  # of one lane

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>What if: {{ title }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left } text { font: 10px system-ui, sans-serif }
.key span { display: inline-block; width: 1em; height: 1em; vertical-align: -2px; margin: 0 .3em 0 1em }
</style></head><body>
<h1>{{ title }}</h1>
{% for line in lines %}<p>{{ line }}</p>
{% endfor %}
<table><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in body %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
<p class="key">{% for kind, colour in colours.items() %}
<span style="background: {{ colour }}"></span>{{ kind }}{% endfor %}</p>
{% for timeline in timelines %}<h2>Replayed iteration {{ timeline.title }}</h2>
<svg width="{{ width + 130 }}" height="{{ timeline.height }}" role="img">
{% for lane in timeline.lanes %}<text x="0" y="{{ lane.y + 11 }}">{{ lane.name }}</text>
{% for r in lane.rectangles %}<rect x="{{ r.0 }}" y="{{ lane.y }}" width="{{ r.1 }}" height="{{ height }}"
fill="{{ r.2 }}"/>
{% endfor %}{% endfor %}</svg>
{% endfor %}{% if left_out %}<p>{{ left_out }} further ranks are not drawn.</p>{% endif %}
</body></html>
"""


def write_page(
    job: Job, question: Question | None, texts: tuple[str, Sequence[str], Sequence[str], Sequence[Sequence[str]]],
    path: Path,
) -> None:  # fmt: skip
    """Writes the page.

    Args:
        texts: title, lines of the answer, and head and rows of the breakdown.

    Raises:
        TraceError: if the file can't be written, or is one of the traces.
    """
    write_text([record.trace.file for record in job.records], path, render_page(job, question, texts))


def render_page(
    job: Job, question: Question | None, texts: tuple[str, Sequence[str], Sequence[str], Sequence[Sequence[str]]]
) -> str:
    """Returns the page as text; everything that comes from traces is escaped."""
    import jinja2

    title, lines, head, body = texts
    work = before_and_after(job, question)
    longest = max((p.end_ns for _, timeline in work for p in timeline), default=1.0)
    ranks = sorted({p.rank for _, timeline in work for p in timeline})
    timelines = [
        {"title": name, **_drawn([p for p in timeline if p.rank in ranks[:_MOST_RANKS]], longest)}
        for name, timeline in work
    ]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_PAGE).render(
        title=title, lines=lines, head=head, body=body, colours=_COLOURS, timelines=timelines, width=_WIDTH,
        height=_HEIGHT, left_out=max(len(ranks) - _MOST_RANKS, 0),
    )  # fmt: skip


def _drawn(work: list[Piece], longest_ns: float) -> dict[str, object]:
    lanes: dict[tuple[int, str], list[Piece]] = {}
    for piece in work:
        lanes.setdefault((piece.rank, piece.lane), []).append(piece)
    drawn = []
    for y, ((rank, lane), listed) in enumerate(sorted(lanes.items())):
        rectangles = []
        for kind, colour in _COLOURS.items():
            spans = np.array([(p.start_ns, p.end_ns) for p in listed if p.kind == kind]).reshape(-1, 2)
            # What is closer than a pixel is drawn as one.
            pixel = longest_ns / _WIDTH
            merged = merge(np.rint(spans + np.array([0, pixel])).astype(np.int64))
            for start, end in merged[:_MOST_RECTANGLES].tolist():
                x = 120 + max(start, 0) / longest_ns * _WIDTH
                rectangles.append(
                    (round(x, 1), round(max((end - start - pixel) / longest_ns * _WIDTH, 0.5), 1), colour)
                )
        drawn.append({"name": f"rank {rank} {lane}"[:24], "y": y * (_HEIGHT + _GAP), "rectangles": rectangles})
    return {"lanes": drawn, "height": len(drawn) * (_HEIGHT + _GAP) + _GAP}
