"""Writes the page as one file without external resources."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from wirecost._version import __version__
from wirecost.errors import WirecostError
from wirecost.planner.answer import Answer
from wirecost.planner.document import plan_row, rule_row
from wirecost.planner.page.data import page_data
from wirecost.units import format_ns, format_size_bytes

_START = b"<!doctype html>"
"""The first bytes of a page. A file that begins otherwise is not replaced."""


def write_page(answer: Answer, assumed: dict[str, str], path: Path) -> None:
    """Writes the page.

    Raises:
        WirecostError: if there is no plan to show, or the file can't be written.
    """
    if not answer.ranked:
        raise WirecostError("--html: no plan fits, so that there is nothing to draw")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise WirecostError(f"{path}: is no regular file; choose another name")
    try:
        if path.exists() and not path.read_bytes()[: len(_START)].startswith(_START):
            raise WirecostError(f"{path}: exists and is no page; choose another name")
        path.write_text(render_page(answer, assumed), encoding="utf-8")
    except OSError as error:
        raise WirecostError(f"{path}: can't be written: {error.strerror or error}") from error


def render_page(answer: Answer, assumed: dict[str, str]) -> str:
    """Returns the page as text. Names from files are escaped."""
    import jinja2

    question = answer.question
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_file("page.html")).render(
        title=f"{question.workload.name} on {question.gpus} GPUs of {question.cluster.name}",
        lines=_lines(answer, assumed),
        plans=[_plan(answer, number) for number in range(1, len(answer.ranked) + 1)],
        rules=[rule_row(rule) for rule in answer.rules],
        data=_script_json(page_data(answer)),
        version=__version__,
        css=_file("page.css"),
        js=_file("page.js"),
    )


def _plan(answer: Answer, number: int) -> dict[str, Any]:
    row = plan_row(answer, number, answer.ranked[number - 1])
    return {
        **row,
        "iteration": format_ns(row["iteration_s"] * 1e9),
        "memory": format_size_bytes(row["memory_bytes"], 3),
        "place": answer.ranked[number - 1].place,
    }


def _lines(answer: Answer, assumed: dict[str, str]) -> list[str]:
    question, found = answer.question, answer.found
    fit = "fit" if found.is_certain else "may fit"
    words = ", ".join(f"{key} {value}" for key, value in assumed.items())
    return [
        f"Global batch {question.global_batch} x {question.workload.sequence_length} tokens. {len(found):,} of "
        f"{found.legal:,} legal plans {fit} in memory. All times are predicted.",
        f"The model can't tell {answer.alike:,} plans from the fastest one, even where errors that they share "
        "cancel.",
        f"Assumed: {words}." if words else "",
    ]


def _file(name: str) -> str:
    return (resources.files("wirecost.planner") / "page" / name).read_text(encoding="utf-8")


def _script_json(data: Any) -> str:
    """Returns JSON that is safe in a script element: nothing in it ends the element or opens another one."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for harmful in "<>&\u2028\u2029":
        text = text.replace(harmful, f"\\u{ord(harmful):04x}")
    return text
