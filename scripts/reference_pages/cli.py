"""The page of the command line, made from the typer application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from reference_pages import NOTICE, table
from wirecost.cli import application

_INTRODUCTION = """# Command line

Every command explains itself: `wirecost COMMAND --help`. `wirecost --version` prints the version, and
`wirecost --install-completion` installs completion for your shell.

Exit codes are the same in all commands:

| code | meaning |
|---|---|
| 0 | done |
| 1 | ran, and something failed (an experiment, a check that was asked for) |
| 2 | refused: the input can't be used, and one line on standard error gives the reason |
| 128 + N | ended by signal N (130 after Ctrl-C) |
"""


def page() -> str:
    """Returns the page: usage, arguments, options and defaults of every command that isn't hidden."""
    root = typer.main.get_command(application())
    sections = [_section(path, command) for path, command in _commands(["wirecost"], root)]
    return "\n".join([NOTICE, "", _INTRODUCTION, *sections])


def _commands(path: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        if child.hidden:
            continue
        if getattr(child, "commands", None):
            yield from _commands([*path, name], child)
        else:
            yield [*path, name], child


def _section(path: list[str], command: Any) -> str:
    context = _context(path, command)
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [
        f"## {' '.join(path)}",
        "",
        _prose(command.help or ""),
        "",
        "```text",
        f"{' '.join(path)} {pieces}",
        "```",
        "",
    ]
    arguments, options = [], []
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        record = parameter.get_help_record(context)
        if record is None or "--help" in parameter.opts:
            continue
        (arguments if parameter.param_type_name == "argument" else options).append(_row(record))
    for heading, rows in (("argument", arguments), ("option", options)):
        if rows:
            lines += [table((heading, "meaning", "default"), rows), ""]
    return "\n".join(lines)


def _context(path: list[str], command: Any) -> Any:
    """Returns the context in which a command prints its help."""
    return command.context_class(command, info_name=path[-1], help_option_names=["-h", "--help"])


_EXTRA = re.compile(r"\s*\[([^\[\]]*)\]$")


def _row(record: tuple[str, str]) -> tuple[str, str, str]:
    """Returns (name, meaning, default) from a line of the help."""
    name, meaning = record
    default = ""
    extra = _EXTRA.search(meaning)
    if extra:
        parts = [part.strip() for part in extra[1].split(";")]
        default = ", ".join(p.removeprefix("default: ") for p in parts)
        meaning = meaning[: extra.start()]
    shown = default if default in ("", "required") else f"`{default}`"
    return f"`{' '.join(name.split())}`", _escaped(meaning), shown


def _escaped(text: str) -> str:
    """Returns text in which Markdown sees no markup, except code between backticks."""
    parts = text.split("`")
    return "`".join(
        part if index % 2 else part.replace("<", "&lt;").replace("*", "\\*") for index, part in enumerate(parts)
    )


def _prose(text: str) -> str:
    """Returns a command's help as Markdown. Lines that only show a call become code."""
    paragraphs = []
    for paragraph in text.replace("\b\n", "").split("\n\n"):
        joined = " ".join(paragraph.split())
        call = re.search(r"^(.*?)\s*(wirecost [a-z].*)$", joined)
        if call and call[1].endswith(":"):
            paragraphs.append(f"{call[1]} `{call[2]}`")
        else:
            paragraphs.append(_escaped(joined))
    return "\n\n".join(paragraphs)
