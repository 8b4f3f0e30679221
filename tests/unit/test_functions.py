"""No function is longer than 80 lines; the list of a command's options is not counted."""

from __future__ import annotations

import ast
from pathlib import Path

import wirecost

SOURCE = Path(wirecost.__file__).parent
MOST_LINES = 80


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef, *, without_options: bool) -> int:
    """The lines of a function; without options from the first statement of its body on."""
    first = function.body[0].lineno if without_options else function.lineno
    return (function.end_lineno or first) - first + 1


def is_command(path: Path) -> bool:
    return path.parent.name == "cli"


def test_functions_have_at_most_80_lines() -> None:
    lengths = [
        (f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}", lines_of(node, without_options=is_command(path)))
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(lengths) > 3000
    assert [(name, lines) for name, lines in lengths if lines > MOST_LINES] == []
