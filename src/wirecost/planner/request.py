"""Turns options and YAML files into the question of a search."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from wirecost.costmodel.setup import SHARDING, Setup
from wirecost.costmodel.shape import shape_of
from wirecost.errors import SpecError, shorten
from wirecost.planner.answer import Present
from wirecost.planner.choices import Choice
from wirecost.planner.constraints import Constraint, parse_constraint, parse_constraints
from wirecost.planner.limits import Limits, check_limits, parse_dollars, parse_long_time_s, parse_tokens
from wirecost.planner.question import Question, usual_global_batch, usual_stacks
from wirecost.planner.schedules import parse_schedules, schedule_constraint, unmeasured_schedule
from wirecost.prediction.job import JobOptions, full_names, setup_of
from wirecost.prediction.predict import predict
from wirecost.spec import DataParallel, Plan, RankOrder, Stack, Workload, load_spec, read_yaml, validate
from wirecost.spec.base import Spec

_OF_PLAN = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "virtual_stages": "vpp",
    "micro_batch": "mb",
}
"""Options of a job that fix a degree, and the quantity of a constraint."""
_JOB = ("cluster", "gpus", "precision", "matrix_precision", "sequence_length", "bandwidth", "calibration")
MOST_STACKS = 8
_LISTS = ("constraints", "schedules")


class PlanConstraints(Spec):
    """A YAML file of constraints: `--constraint FILE.yaml`.

    Attributes:
        constraints: conditions on plans, as `tp<=8`.
        headroom: share of the GPU's memory that stays free, as `10 %`.
        schedules: pipeline schedules that may be chosen, as `[1f1b, interleaved, zb-h1]`.
        tokens: tokens of the training run, as `300B`.
        deadline: longest time of the run, as `30 days`.
        budget: largest price of the run in US dollars, as `250k`.
        price: price of one GPU for an hour in US dollars.
    """

    constraints: tuple[str, ...] = Field(default=(), max_length=100)
    schedules: tuple[str, ...] | None = Field(default=None, max_length=20)
    headroom: str | float | None = None
    tokens: str | float | None = None
    deadline: str | float | None = None
    budget: str | float | None = None
    price: str | float | None = None


@dataclass(frozen=True)
class Wishes:
    """What a user asks for besides the job, as texts. None is nothing.

    Attributes:
        constraints: conditions as `tp<=8`, and names of YAML files.
        headroom, tokens, deadline, budget, price: see `PlanConstraints`.
        schedules: names of pipeline schedules, separated by commas.
        ranks_uncertain: whether plans that may not fit are ranked among those that do.
    """

    constraints: tuple[str, ...] = ()
    headroom: str | None = None
    tokens: str | None = None
    deadline: str | None = None
    budget: str | None = None
    price: str | None = None
    schedules: str | None = None
    ranks_uncertain: bool = False


@dataclass(frozen=True)
class Request:
    """A question with its limits.

    Attributes:
        question, limits: what is asked.
        assumed: settings that no option specified, as name and value for people.
    """

    question: Question
    limits: Limits
    assumed: dict[str, str]


def request_of(workload: str | Path | Workload, options: JobOptions, wishes: Wishes = Wishes()) -> Request:
    """Returns the question that options describe. Options of a plan fix what they name, and the rest is searched.

    Raises:
        SpecError: for unknown names, files that can't be read, or values that can't be.
    """
    options = _searched(options)
    job: JobOptions = {key: value for key, value in options.items() if key in _JOB}  # type: ignore[assignment]
    stacks = _stacks(options.get("stack"))
    if stacks and len(stacks) == 1:
        job["stack"] = stacks[0]
    base = setup_of(workload, job)
    if not stacks:
        # A calibration has its own stack.
        stacks = (base.stack,) if options.get("calibration") else usual_stacks(base.cluster)
    elif len(stacks) == 1:
        stacks = (base.stack,)
    wishes = _with_files(wishes)
    assumed = {"precision": base.plan.precision.value} if options.get("precision") is None else {}
    if options.get("stack") is None:
        assumed["stacks"] = " and ".join(stack.name for stack in stacks)
    batch = options.get("global_batch")
    if batch is None:
        batch = usual_global_batch(base.workload, base.gpus, float(shape_of(base.workload).parameters))
        assumed["global batch"] = str(batch)
    if options.get("sequence_length") is None:
        assumed["sequence length"] = str(base.workload.sequence_length)
    constraints = (*parse_constraints(wishes.constraints), *_fixed(options))
    question = Question(
        workload=base.workload,
        cluster=base.cluster,
        gpus=base.gpus,
        global_batch=batch,
        stacks=stacks,
        precision=base.plan.precision,
        matrix_precision=base.plan.matrix_precision,
        constraints=constraints,
        headroom=_share(wishes.headroom),
        schedules=parse_schedules(wishes.schedules, constraints),
        ranks_uncertain=wishes.ranks_uncertain,
    )
    return Request(question, _limits(wishes, base), assumed)


def present_plan(workload: str | Path | Workload, options: JobOptions) -> Present:
    """Returns the plan that options describe.

    Raises:
        SpecError: see `wirecost.prediction.job.setup_of`.
    """
    setup = setup_of(workload, _searched(options))
    plan = setup.plan
    bucketed = plan.data_parallel is not DataParallel.ALL_REDUCE and plan.overlap
    several = setup.data_parallel * plan.context_parallel > 1
    choice = Choice(
        tp=plan.tensor_parallel,
        pp=plan.pipeline_parallel,
        vpp=plan.virtual_stages,
        cp=plan.context_parallel,
        ep=plan.expert_parallel,
        dp=setup.data_parallel,
        mb=setup.micro_batch,
        zero=int(SHARDING[plan.data_parallel]) if several else 0,
        node_sharding=plan.sharding_group == "node",
        overlap=bucketed and several,
        sp=plan.sequence_parallel and plan.tensor_parallel > 1,
        recompute=plan.recompute,
        pp_first=plan.rank_order is RankOrder.PIPELINE_FIRST,
        dp_last=plan.rank_order is RankOrder.DATA_LAST,
        schedule=unmeasured_schedule(plan),
    )
    return Present(choice, predict(setup))


def request_around(
    workload: str | Path | Workload, options: JobOptions, wishes: Wishes, present: Present
) -> Request:
    """Returns the question of the plans around the one that options describe: with its batch and its stack."""
    setup = present.prediction.setup
    rest = without_plan({**options, "global_batch": setup.global_batch})
    request = with_stacks(request_of(workload, rest, wishes), (setup.stack,))
    own, listed = present.choice.schedule, request.question.schedules
    if own is not None and own not in listed:
        request = replace(request, question=replace(request.question, schedules=(*listed, own)))
    return request


def without_plan(options: JobOptions) -> JobOptions:
    """Returns the options that describe no part of a plan."""
    return {key: value for key, value in options.items() if key in (*_JOB, "stack", "global_batch")}  # type: ignore[return-value]


def with_stacks(request: Request, stacks: tuple[Stack, ...]) -> Request:
    """Returns the request with other stacks."""
    assumed = {key: value for key, value in request.assumed.items() if key != "stacks"}
    return replace(request, question=replace(request.question, stacks=stacks), assumed=assumed)


def _searched(options: JobOptions) -> JobOptions:
    """Returns options by their full names.

    Raises:
        SpecError: for unknown options, and for those of plans that are not searched.
    """
    options = full_names(options)
    if options.get("lora_rank") is not None:
        raise SpecError("lora_rank: plans with adapters aren't searched; `wirecost predict` predicts one")
    if options.get("tensor_overlap") is not None:
        raise SpecError("tensor_overlap: isn't searched; `wirecost predict` predicts a plan with it")
    communication = options.get("context_communication")
    if communication not in (None, "p2p"):
        raise SpecError(
            f"context_communication: {shorten(communication)} isn't searched, but p2p is; "
            "`wirecost predict` predicts a plan with it"
        )
    return options


def _stacks(given: str | Path | Stack | None) -> tuple[Stack, ...]:
    if given is None or isinstance(given, Stack):
        return () if given is None else (given,)
    text = str(given)
    names = [text] if text.lstrip().startswith("{") else [name.strip() for name in text.split(",") if name.strip()]
    if not 1 <= len(names) <= MOST_STACKS:
        raise SpecError(f"stack: {len(names)} stacks; 1 to {MOST_STACKS} can be searched")
    return tuple(load_spec("stack", name) for name in dict.fromkeys(names))


def _fixed(options: JobOptions) -> list[Constraint]:
    """Returns the constraints that options of a plan make."""
    texts = [f"{key}={options[name]}" for name, key in _OF_PLAN.items() if options.get(name) is not None]  # type: ignore[literal-required]
    plan = options.get("plan")
    if plan is not None:
        loaded = plan if isinstance(plan, Plan) else load_spec("plan", str(plan))
        raise SpecError(
            f"plan '{loaded.name}' is complete: `wirecost predict` predicts it; --change-one searches plans that "
            "differ from it in one choice"
        )
    if (data := options.get("data_parallel")) is not None:
        kind = DataParallel(data) if data in {*DataParallel} else DataParallel._missing_(data)
        if kind is None:
            raise SpecError(f"data_parallel: {shorten(data)} is none; all_reduce, ddp, zero1, zero2 or zero3")
        texts.append(f"zero={int(SHARDING[kind])}")
        texts += ["overlap=off"] * (kind is DataParallel.ALL_REDUCE) + ["overlap=on"] * (kind is DataParallel.DDP)
    if (schedule := options.get("pipeline_schedule")) is not None:
        texts.append(schedule_constraint(schedule))
    if (group := options.get("sharding_group")) is not None:
        texts.append(f"sharding_group={group}")
    if (split := options.get("sequence_parallel")) is not None:
        texts.append(f"sp={'on' if split else 'off'}")
    if (again := options.get("recompute")) is not None:
        texts.append(f"recompute={again}")
    return [parse_constraint(text) for text in texts]


def _with_files(wishes: Wishes) -> Wishes:
    """Returns wishes in which each named YAML file is replaced by what it holds. Options go before files."""
    texts: list[str] = []
    for text in wishes.constraints:
        if not re.search(r"\.ya?ml$", text):
            texts.append(text)
            continue
        loaded = validate(PlanConstraints, read_yaml(Path(text)), text)
        texts += loaded.constraints
        held = {key: str(value) for key, value in loaded if key not in _LISTS and value is not None}
        held |= {} if loaded.schedules is None else {"schedules": ",".join(loaded.schedules)}
        wishes = replace(wishes, **{key: value for key, value in held.items() if getattr(wishes, key) is None})
    return replace(wishes, constraints=tuple(texts))


def _limits(wishes: Wishes, base: Setup) -> Limits:
    price = base.cluster.dollars_per_gpu_hour if wishes.price is None else parse_dollars(wishes.price, "price")
    limits = Limits(
        tokens=None if wishes.tokens is None else parse_tokens(wishes.tokens),
        deadline_s=None if wishes.deadline is None else parse_long_time_s(wishes.deadline),
        budget_dollars=None if wishes.budget is None else parse_dollars(wishes.budget),
        price=price,
    )
    check_limits(limits)
    return limits


def _share(text: str | None) -> float:
    if text is None:
        return 0.0
    match = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*(%?)\s*", text[:40])
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value < 1:
        raise SpecError(f"headroom: {shorten(text)} is no share of memory; write it as '10 %' or 0.1")
    return value
