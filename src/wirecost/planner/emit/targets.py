"""The frameworks that a plan can be written for, and what each can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wirecost.errors import SpecError, one_of
from wirecost.planner.answer import Answer
from wirecost.planner.capabilities import OF_STACKS, Capabilities
from wirecost.planner.emit import deepspeed, megatron, nemo, torchrun, torchtitan
from wirecost.planner.emit.job import EmittedJob
from wirecost.planner.request import Request, with_stacks
from wirecost.planner.schedules import MEASURED_SCHEDULES
from wirecost.spec import stack_named


@dataclass(frozen=True)
class Target:
    """A framework.

    Attributes:
        write: returns a plan as its flags or configuration.
        version: the version whose names are written.
        stack: the stack that a search takes for it if none is named. None is the usual ones.
        can: the choices that can be written.
    """

    write: Callable[[EmittedJob], str]
    version: str
    stack: str | None
    can: Capabilities


_DEEPSPEED = replace(OF_STACKS["deepspeed"], pipeline=False, expert=False)
_MEGATRON = replace(OF_STACKS["megatron-core"], schedules=MEASURED_SCHEDULES)
_TORCHTITAN = replace(OF_STACKS["torchtitan"], schedules=MEASURED_SCHEDULES)
TARGETS = {
    "torchrun": Target(torchrun.write, torchrun.VERSION, None, Capabilities()),
    "megatron": Target(megatron.write, megatron.VERSION, "megatron-core", _MEGATRON),
    "torchtitan": Target(torchtitan.write, torchtitan.VERSION, "torchtitan", _TORCHTITAN),
    "deepspeed": Target(deepspeed.write, deepspeed.VERSION, "deepspeed", _DEEPSPEED),
    "nemo": Target(nemo.write, nemo.VERSION, "megatron-core", _MEGATRON),
}


def check_target(name: str) -> None:
    """Checks the name of a framework.

    Raises:
        SpecError: if it isn't one of TARGETS.
    """
    if name not in TARGETS:
        raise SpecError(f"--emit: {one_of('framework', name, TARGETS)}")


def restricted(request: Request, name: str, *, named: bool) -> Request:
    """Returns a request for plans that a framework can run. `named` says whether the user named stacks."""
    target = TARGETS[name]
    if target.stack is not None and not named:
        request = with_stacks(request, (stack_named(target.stack),))
    return replace(request, question=replace(request.question, target=target.can))


def emitted(answer: Answer, plan: str, name: str) -> str:
    """Returns a plan of an answer for a framework. `plan` is a number of the list or a label.

    Raises:
        SpecError: if there is no such plan, or the framework doesn't train such a model.
    """
    return emitted_at(answer, answer.place_of(plan), name)


def emitted_at(answer: Answer, place: int, name: str) -> str:
    """Returns the plan at a place of the search for a framework.

    Raises:
        SpecError: if the framework doesn't train such a model.
    """
    return TARGETS[name].write(EmittedJob(answer.found.choice(place), answer.setup_at(place)))
