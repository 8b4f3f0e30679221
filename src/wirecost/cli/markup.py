"""Tables as Markdown and LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.text import printable

if TYPE_CHECKING:
    from rich.table import Table

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": "$-$", "×": r"$\times$", "±": r"$\pm$", "–": "--",
}  # fmt: skip
_MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|~"}


def as_markdown(table: Table) -> str:
    """Returns a table in the notation of GitHub Flavored Markdown, with its title above."""
    title, head, body = _texts(table)
    marks = ["---:" if column.justify == "right" else ":---" for column in table.columns]
    rows = [" | ".join(_escaped(cell, _MARKDOWN) for cell in line) for line in (head, *body)]
    lines = [f"| {rows[0]} |", f"| {' | '.join(marks)} |", *(f"| {row} |" for row in rows[1:])]
    return "\n".join([f"**{_escaped(title, _MARKDOWN)}**", "", *lines] if title else lines)


def as_latex(table: Table) -> str:
    """Returns a table as LaTeX for the package booktabs, with its title as the caption."""
    title, head, body = _texts(table)
    columns = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    rows = [" & ".join(_escaped(cell, _LATEX) for cell in line) + r" \\" for line in (head, *body)]
    caption = [rf"\caption{{{_escaped(title, _LATEX)}}}"] if title else []
    lines = [r"\begin{table}", r"\centering", *caption, rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0]]
    return "\n".join([*lines, r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _texts(table: Table) -> tuple[str, list[str], list[list[str]]]:
    """Returns the title, the heads and the rows of a table as plain text."""
    columns = [[_text(cell) for cell in column.cells] for column in table.columns]
    body = [list(line) for line in zip(*columns, strict=True)] if columns else []
    return _text(table.title or ""), [_text(column.header) for column in table.columns], body


def _text(cell: object) -> str:
    from rich.text import Text

    text = cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
    return printable(" ".join(text.split()))


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
