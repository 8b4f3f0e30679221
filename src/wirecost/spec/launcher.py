"""Launchers that a command may start itself: torchrun, accelerate and fabric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run")
_PER_NODE = ("--nproc-per-node", "--nproc_per_node")
_DEVICES = ("--devices",)
_PROCESSES = ("--num_processes", "--num-processes")
_MACHINES = ("--num_machines", "--num-machines")
_WRAPPERS = frozenset(
    (
        "chrt", "conda", "env", "hatch", "ionice", "mamba", "micromamba", "nice", "nohup", "numactl", "pdm",
        "pipenv", "pixi", "poetry", "rye", "setsid", "stdbuf", "taskset", "time", "uv", "uvx",
    )
)  # fmt: skip
"""Programs that start the command behind their own options."""
_PROGRAM = re.compile(r"torchrun|accelerate|fabric|python[0-9.]*")
_INTERPRETER = re.compile(r"python[0-9.]*|(ba|da|k|z)?sh")
_PYTHON = re.compile(r"python[0-9.]*")
_VALUED = ("-W", "-X", "-o", "-O")
"""Options of interpreters that a value follows."""
_SCRIPT = re.compile(r".*\.(py|sh)")


@dataclass(frozen=True)
class Launcher:
    """A launcher with its arguments in a command.

    Attributes:
        kind: `torchrun`, `accelerate` or `fabric`.
        prefix: number of arguments before the launcher's own options.
    """

    kind: str
    prefix: int


def launcher_of(command: Sequence[str]) -> Launcher | None:
    """Returns the launcher that a command starts, or None if the command is started once for each rank."""
    program = PurePath(command[0]).name
    if program == "torchrun":
        return Launcher("torchrun", 1)
    if program == "accelerate" and list(command[1:2]) == ["launch"]:
        return Launcher("accelerate", 2)
    if program == "fabric" and list(command[1:2]) == ["run"]:
        return Launcher("fabric", 2)
    if program in _WRAPPERS:
        return _wrapped(command)
    if not _PYTHON.fullmatch(program):
        return None
    # Options of the interpreter may stand before the module.
    for place in range(1, len(command)):
        if command[place] == "-m" and place + 1 < len(command):
            module = command[place + 1]
            if module in _TORCHRUN_MODULES:
                return Launcher("torchrun", place + 2)
            if module in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli"):
                skip = 1 if module.endswith("_cli") else 0
                return Launcher("accelerate", place + 2 + skip)
            return None
        if not command[place].startswith("-"):
            # torchrun and accelerate are Python scripts too.
            inner = launcher_of(command[place:])
            return Launcher(inner.kind, inner.prefix + place) if inner and place < len(command) else None
    return None


def script_of(command: Sequence[str]) -> str | None:
    """Returns the script that an interpreter or a launcher runs from the folder in which it is started.

    None if there is none, if a wrapper may change the folder, or if it could be the value of an option before it.
    """
    launcher = launcher_of(command)
    program = PurePath(command[0]).name
    if program in _WRAPPERS or not (launcher or _INTERPRETER.fullmatch(program)):
        return None
    start = launcher.prefix if launcher is not None else 1
    for place, argument in enumerate(command[start:], start):
        before = command[place - 1] if place > start else ""
        if argument in ("-c", "-m", "--module", "--no-python", "--no_python"):
            return None
        if argument.startswith("-"):
            continue
        valued = before.startswith("--") and "=" not in before
        if _SCRIPT.fullmatch(argument) and not valued:
            return argument
        if launcher is None and before not in _VALUED:
            return None
    return None


def lacks_script(command: Sequence[str]) -> bool:
    """Returns whether a command is an interpreter without a script, which would read standard input."""
    program = PurePath(command[0]).name
    if program in _WRAPPERS:
        return _PYTHON.fullmatch(PurePath(command[-1]).name) is not None
    if not _INTERPRETER.fullmatch(program):
        return False
    for before, argument in pairwise(command):
        if argument == "--module" or (argument[:1] == "-" and argument[:2] != "--" and {"c", "m"} & set(argument)):
            return False  # code, or a module
        if argument[:1] != "-" and before not in _VALUED:
            return False
    return True


def _wrapped(command: Sequence[str]) -> Launcher | None:
    """Returns the launcher that a wrapper such as `uv run` starts, or None."""
    for place in range(1, len(command)):
        if _SCRIPT.fullmatch(command[place]):
            return None
        if _PROGRAM.fullmatch(PurePath(command[place]).name):
            inner = launcher_of(command[place:])
            return Launcher(inner.kind, inner.prefix + place) if inner else None
    return None


def option_value(arguments: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the value of the first option with one of these names, or None."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else (arguments[place + 1] if place + 1 < len(arguments) else None)
    return None


def ranks_per_host_of(command: Sequence[str], hosts: int) -> int | None:
    """Returns the number of ranks that the launcher in a command starts on each host, or None if the command
    doesn't say it as a number.

    The options of torchrun and fabric count the ranks of a host, and that of accelerate those of all hosts.
    Without a number of machines, these are divided over `hosts`.
    """
    launcher = launcher_of(command)
    if launcher is None:
        return None
    arguments = command[launcher.prefix :]
    if launcher.kind == "torchrun":
        return _number(option_value(arguments, _PER_NODE)) or (None if option_value(arguments, _PER_NODE) else 1)
    if launcher.kind == "fabric":
        return _number(option_value(arguments, _DEVICES)) or (None if option_value(arguments, _DEVICES) else 1)
    processes, machines = (_number(option_value(arguments, names)) for names in (_PROCESSES, _MACHINES))
    if processes is None:
        return None
    hosts = machines or hosts
    return processes // hosts if processes % hosts == 0 else processes


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,5}", text) else None
