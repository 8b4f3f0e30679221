"""Describes how the best plans of a search are run: by wirecost's engine or a command, and on which machines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.errors import SpecError, one_of
from wirecost.planner.answer import Answer
from wirecost.planner.emit import emitted_at

if TYPE_CHECKING:
    from wirecost.study.allocation import Allocation, OnMachines

NUMBERS = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb", "accumulation", "global_batch", "sequence_length", "zero")
"""Placeholders of a command for numbers of a plan."""
_SCRIPTS = (".py", "torchtitan.train")


@dataclass(frozen=True)
class Measuring:
    """The machines on which plans are run, and the program that trains them.

    Attributes:
        place: nodes of a batch system, or machines that the user names. None is this machine, which emulates the
            hosts of a cluster with several nodes.
        command: command that trains a plan, with placeholders between braces: `NUMBERS`, `{flags}` and `{file}`.
            None is wirecost's engine.
        target: framework whose flags are `{flags}` and whose configuration is `{file}`.
        interface: network interface between other machines. None leaves the choice to NCCL or gloo.
    """

    place: Allocation | OnMachines | None = None
    command: str | None = None
    target: str | None = None
    interface: str | None = None

    def __post_init__(self) -> None:
        if self.command is not None and self.place is not None and not hasattr(self.place, "nodes"):
            raise SpecError(
                "--command: runs on this machine or in an allocation of Slurm (--launcher srun); on named "
                "machines wirecost's engine measures, without it"
            )
        if self.command is not None:
            self.arguments({name: "1" for name in (*NUMBERS, "flags", "file")})

    def arguments(self, values: dict[str, str]) -> list[str]:
        """Returns the command's arguments with the values of its placeholders.

        `{flags}` that stands alone becomes as many arguments as there are flags.

        Raises:
            SpecError: if the command can't be split, or has a placeholder that doesn't exist.
        """
        assert self.command is not None
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise SpecError(f"--command: can't be split into arguments: {error}") from error
        if not words:
            raise SpecError("--command: names no program")
        arguments: list[str] = []
        for word in words:
            if word == "{flags}":
                self._needs_target("flags")
                arguments += shlex.split(values["flags"])
            else:
                arguments.append(self._filled(word, values))
        return arguments

    def _filled(self, word: str, values: dict[str, str]) -> str:
        """Returns an argument with values in place of the names between braces. Other braces are kept."""
        parts = word.split("{")
        filled = parts[0]
        for part in parts[1:]:
            name, brace, rest = part.partition("}")
            if not brace or not name.isidentifier():
                filled += "{" + part
                continue
            if name not in values:
                raise SpecError(f"--command: {one_of('placeholder', name, (*NUMBERS, 'flags', 'file'))}")
            if name in ("flags", "file"):
                self._needs_target(name)
            filled += values[name] + rest
        return filled

    def _needs_target(self, name: str) -> None:
        if self.target is None:
            raise SpecError(f"--command: {{{name}}} needs --emit, which names the framework")


def allocation_of(gpus: int, per_node: int, environment: Mapping[str, str]) -> Allocation:
    """Returns the nodes of this job's allocation of Slurm that plans need.

    Raises:
        SpecError: if this process is in none, or it has too few nodes.
    """
    from wirecost.study.allocation import Allocation

    nodes = max(1, gpus // per_node)
    how = f"salloc -N {nodes} --ntasks-per-node={gpus // nodes} wirecost plan ..."
    if "SLURM_JOB_ID" not in environment:
        raise SpecError(f"--launcher srun: needs an allocation of Slurm, as with {how}")
    present = environment.get("SLURM_JOB_NUM_NODES", "")
    if present.isdigit() and int(present) < nodes:
        raise SpecError(f"--launcher srun: {nodes} nodes are needed, and the allocation has {present}; {how}")
    return Allocation(nodes, gpus // nodes, is_emulated=False)


def job_of(answer: Answer, place: int, how: Measuring, folder: Path) -> dict[str, Any]:
    """Returns the workload of a study that trains the plan at a place by the user's command.

    A configuration of the framework is written to `folder` if the command takes a file.

    Raises:
        SpecError: if the framework doesn't train such a model.
        OSError: if the file can't be written.
    """
    assert how.command is not None
    choice, setup = answer.found.choice(place), answer.setup_at(place)
    values = {name: str(getattr(choice, name)) for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "mb", "zero")}
    values |= {
        "accumulation": str(setup.accumulation),
        "global_batch": str(setup.global_batch),
        "sequence_length": str(setup.workload.sequence_length),
        "flags": "",
        "file": "",
    }
    if how.target is not None:
        text = emitted_at(answer, place, how.target)
        values["flags"] = shlex.join(flags_of(text))
        if "{file}" in how.command:
            path = folder.absolute() / f"plan-{place + 1}.{how.target}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            values["file"] = str(path)
    return {"name": f"plan-{place + 1}", "command": how.arguments(values)}


def flags_of(text: str) -> list[str]:
    """Returns the flags of an emitted command line, without the launcher and the script. A configuration file has
    none."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    try:
        words = shlex.split(" ".join(line.removesuffix("\\") for line in lines))
    except ValueError:
        return []
    scripts = [number for number, word in enumerate(words) if word.endswith(_SCRIPTS)]
    return words[scripts[0] + 1 :] if scripts else []
