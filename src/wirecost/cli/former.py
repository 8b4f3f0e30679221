"""Accepts, with a warning, former short options that have another meaning in other commands."""

from __future__ import annotations

from collections.abc import Sequence

from wirecost.errors import deprecated

_OF_JOBS = {"-c": "--cluster", "-n": "--gpus", "-b": "--micro-batch"}
FORMER: dict[str, dict[str, str]] = {
    "predict": _OF_JOBS,
    "need": {**_OF_JOBS, "-f": "--fraction"},
    "project": {"-c": "--cluster", "-n": "--gpus"},
    "calibrate": {"-c": "--cluster", "-b": "--micro-batch"},
    "validate": {"-c": "--cluster"},
    "trace": {"-f": "--format", "-o": "--out", "--output": "--out"},
    "compare": {"-f": "--format"},
}
"""The former options with the current ones for each command."""


def with_present_names(arguments: Sequence[str]) -> list[str]:
    """Returns a command line's arguments with current names in place of former ones."""
    former = FORMER.get(arguments[0], {}) if arguments else {}
    present: list[str] = []
    for argument in arguments:
        name = argument.split("=")[0] if argument.startswith("--") else argument[:2]
        glued = argument[len(name) :]
        if name not in former or (len(argument) > 1 and argument[1].isdigit()):
            present.append(argument)
            continue
        deprecated(f"{name} of `wirecost {arguments[0]}`", former[name])
        present.append(former[name] + (glued if name.startswith("--") else ""))
        if glued and not name.startswith("--"):
            present.append(glued.removeprefix("="))
    return present
