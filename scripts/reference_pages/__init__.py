"""Makes the pages of docs/reference that follow from the code. `scripts/reference` writes them."""

from __future__ import annotations

NOTICE = "<!-- Made by scripts/reference from the code. Change the code, then run it again. -->"
"""First line of every page that is made."""


def table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Returns a Markdown table. Bars and line breaks in cells are escaped."""
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def sentence(text: str) -> str:
    """Returns text that begins with a capital letter, unless it begins with code, and ends with a full stop."""
    text = " ".join(text.split())
    first = text[:1].upper() + text[1:]
    return first if first.endswith((".", "?", "!")) else f"{first}."
