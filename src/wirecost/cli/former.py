"""Former short options, which have another meaning in other commands. They are accepted with a warning."""

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
"""For each command, the former options with the present ones."""


def with_present_names(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of a command line with present names in place of former ones."""
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
