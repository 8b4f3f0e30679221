"""The pipeline schedules that a search can try, and their names in options."""

from __future__ import annotations

from wirecost.errors import SpecError, shorten
from wirecost.planner.constraints import WORDS, Constraint
from wirecost.spec import Plan
from wirecost.spec.plan import PipelineSchedule

SCHEDULES = {PipelineSchedule(word.replace("_", "-")): number for word, number in WORDS["schedule"].items()}
"""The schedules that a search can try, and their numbers in columns and constraints."""
MEASURED_SCHEDULES = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED)
"""The schedules of which measured plans exist. A search tries no others unless it is told to."""


def parse_schedules(text: str | None, constraints: tuple[Constraint, ...]) -> tuple[PipelineSchedule, ...]:
    """Returns the schedules that may be chosen: the named ones, or those that were measured. Those that a
    constraint asks for are among them.

    Args:
        text: names, separated by commas. None names none.
        constraints: the constraints of the search.

    Raises:
        SpecError: for a name that is unknown or not searched.
    """
    names = [name.strip().lower().replace("_", "-") for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:
        raise SpecError("schedules: names none; write it as 1f1b,interleaved,zb-h1")
    known = {each.value: each for each in SCHEDULES}
    for name in names:
        if name not in known:
            raise SpecError(f"schedules: {_not_searched(name)}")
    allowed = [known[name] for name in names] or list(MEASURED_SCHEDULES)
    asked = {each.value for each in constraints if each.key == "schedule" and each.sign in ("=", "==")}
    allowed += [each for each, number in SCHEDULES.items() if number in asked]
    return tuple(dict.fromkeys(allowed))


def schedule_constraint(name: str) -> str:
    """Returns the constraint that the option of a pipeline schedule makes.

    Raises:
        SpecError: for a name that is unknown or not searched.
    """
    if name not in {each.value for each in SCHEDULES}:
        raise SpecError(f"pipeline_schedule: {_not_searched(name)}")
    return f"schedule={name}"


def unmeasured_schedule(plan: Plan) -> PipelineSchedule | None:
    """Returns a plan's schedule if it is none of the measured ones.

    Raises:
        SpecError: if no search tries it.
    """
    schedule = plan.pipeline_schedule
    if plan.pipeline_parallel == 1 or schedule in MEASURED_SCHEDULES:
        return None
    if schedule not in SCHEDULES:
        raise SpecError(f"pipeline_schedule: {_not_searched(schedule)}")
    return schedule


def _not_searched(name: str) -> str:
    known = ", ".join(each.value for each in SCHEDULES)
    return f"{shorten(name)} isn't searched, but {known} are; GPipe takes as long as 1f1b and more memory"
