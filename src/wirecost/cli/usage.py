"""One line for what the option parser refuses, in place of its three."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperGroup

from wirecost.errors import SpecError


class Commands(TyperGroup):
    """The group of all commands. It raises SpecError for a command line that the option parser refuses."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _in_one_line():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line():
            return super().invoke(ctx)


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # A group that is called without a command shows its help.
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        raise SpecError(_refused(error)) from error


def _refused(error: Any) -> str:
    """Returns what is wrong with a command line, and what would be right."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split()).removesuffix(".")
    message = message.replace(". Did you mean", "; did you mean").replace(": Input should be", ": it should be")
    option = getattr(error, "option_name", None)
    if context is not None and message.startswith("No such option"):
        message = f"No such option: {str(option)[:80]}{_instead(str(option), context)}"
    message = message[:1].lower() + message[1:]
    return message if context is None else f"{message} (see {context.command_path} -h)"


def _instead(option: str, context: Any) -> str:
    """Returns what the user probably means; empty if nothing is near."""
    command = context.command
    if hasattr(command, "commands"):
        owners = [path for path, name in _options(command, context.command_path) if name == option]
        return f"; it belongs behind its command, as in: {owners[0]} {option}" if owners else ""
    names = [name for parameter in command.params for name in parameter.opts if name.startswith("-")]
    near = difflib.get_close_matches(option, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _options(group: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields (command, option) of all commands of a group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _options(command, f"{path} {name}")
        else:
            yield from ((f"{path} {name}", option) for parameter in command.params for option in parameter.opts)
