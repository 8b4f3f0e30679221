"""The answer of a search: the best plans, what can be said of them, and what can't."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wirecost.costmodel.setup import Setup
from wirecost.errors import SpecError
from wirecost.planner.choices import Choice, plan_of
from wirecost.planner.constraints import WORDS, Constraint, holding, parse_constraints
from wirecost.planner.distinct import Distances, grouped
from wirecost.planner.evidence import never_fitted
from wirecost.planner.explain import Explanation, explain
from wirecost.planner.limits import Limits
from wirecost.planner.listing import best_places, pareto, simplest
from wirecost.planner.nearest import Change, changes_to_fit, changes_to_meet
from wirecost.planner.one_change import with_one_change
from wirecost.planner.question import Question, check_question
from wirecost.planner.robust import Case, cases
from wirecost.planner.rules import Rule, rules_of
from wirecost.planner.search import Found, Tell, search
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import Stack

TOP = 10
TO_MEASURE = 3
"""Plans of a group that are proposed for measuring."""


@dataclass(frozen=True)
class Ranked:
    """One of the best plans.

    Attributes:
        place: its place among all plans that fit, from the fastest on.
        choice: the plan.
        prediction: its prediction, with the interval of the whole.
        group: plans of one number can't be told apart by the model.
        regret: how much slower it is than the fastest plan in the worst of the changed machines.
        unfitted: kinds of parallelism of which the stack's tables have no row; None if nothing is recorded.
        run_s, run_dollars: time and price of the training run. None if unknown.
    """

    place: int
    choice: Choice
    prediction: Prediction
    group: int
    regret: float
    unfitted: list[str] | None
    run_s: float | None = None
    run_dollars: float | None = None

    @property
    def stack(self) -> Stack:
        """The software of the plan."""
        return self.prediction.setup.stack


@dataclass(frozen=True)
class Present:
    """The plan that a user has.

    Attributes:
        choice: the plan.
        prediction: its prediction.
    """

    choice: Choice
    prediction: Prediction


@dataclass
class Answer:
    """The answer of a search.

    Attributes:
        question, limits: what was asked.
        found: all plans that fit, from the fastest on.
        ranked: the best plans. Of those with one set of degrees only the best is listed.
        alike: number of plans that can't be told apart from the fastest.
        simplest: place of the plan with the fewest kinds of parallelism among those.
        to_measure: places of plans in the first group that differ most, to be measured.
        pareto: places of plans that no other beats in both time and memory.
        rules: rules of thumb.
        cases: what becomes of the ranked plans on slower and faster machines.
        present: the plan that is kept but for one choice. None without one.
        meets: whether the fastest plan meets deadline and budget. None without limits.
        changes: where nothing fits, or the limits aren't met: what would.
    """

    question: Question
    limits: Limits
    found: Found
    ranked: list[Ranked] = field(default_factory=list)
    alike: int = 0
    simplest: int | None = None
    to_measure: list[int] = field(default_factory=list)
    pareto: list[int] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    meets: bool | None = None
    present: Present | None = None
    changes: list[Change] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of an iteration."""
        return self.question.global_batch * self.question.workload.sequence_length

    def fit(self, prediction: Prediction) -> str:
        """Returns whether a plan fits in the memory that plans may use: `fits` or `may not fit`."""
        return "fits" if float(prediction.memory.total) <= self.question.usable_bytes else "may not fit"

    def stack_at(self, place: int) -> Stack:
        """Returns the stack of the plan at a place."""
        return self.question.stacks[self.found.modes[int(self.found.mode[place])][1]]

    def setup_at(self, place: int) -> Setup:
        """Returns the setup of the plan at a place."""
        return setup_of_choice(self.question, self.found.choice(place), self.stack_at(place))

    def explain(self, first: str, second: str) -> Explanation:
        """Returns where two plans differ. Each is a number in the list, or a label as `tp=8,pp=2,mb=1`.

        Raises:
            SpecError: if no plan that fits matches.
        """
        return self.explain_places(self.place_of(first), self.place_of(second))

    def explain_places(self, first: int, second: int) -> Explanation:
        """Returns where the plans at two places differ."""
        pair = [(self.found.choice(place), predict(self.setup_at(place))) for place in (first, second)]
        distances = Distances(self.found, (first, second))
        return explain(pair[0], pair[1], distances.half_width(first, second))

    def place_of(self, text: str) -> int:
        """Returns the place of a plan by its number in the list, or of the fastest plan that a label describes.

        Raises:
            SpecError: if there is no such plan.
        """
        if text.strip().isdigit():
            number = int(text.strip()[:9])
            if not 1 <= number <= len(self.ranked):
                raise SpecError(f"plan {number}: the list has plans 1 to {len(self.ranked)}")
            return self.ranked[number - 1].place
        wanted = parse_constraints([text])
        named = {each.key for each in wanted}
        if named >= {"tp", "pp", "dp", "mb"}:
            # A label leaves out what is usual.
            usual = {"vpp": "1", "cp": "1", "ep": "1", "sharding_group": "all", "placement": "tp_first"}
            wanted += parse_constraints([f"{key}={value}" for key, value in usual.items() if key not in named])
        places = np.flatnonzero(matching(self.found, wanted))
        if not len(places):
            raise SpecError(f"plan {text[:80]}: no plan that fits is like that")
        return int(places[0])


def matching(found: Found, constraints: tuple[Constraint, ...]) -> np.ndarray:
    """Returns which plans of a search meet constraints, of shape (plans,)."""
    names = {each.key for each in constraints}
    values = {
        name: found.column(name)
        for name in names
        if name in found.space.columns or name in WORDS or name == "zero"
    }
    values |= {"memory": found.memory_bytes, "time": found.total_s}
    return holding(constraints, values, len(found))


def setup_of_choice(question: Question, choice: Choice, stack: Stack) -> Setup:
    """Returns the checked setup of a plan."""
    matrix = question.matrix_precision.value if question.matrix_precision else None
    plan = plan_of(choice, question.precision.value, matrix)
    return question.setup(plan, choice.mb, stack)


def answer(
    question: Question,
    limits: Limits = Limits(),
    *,
    top: int = TOP,
    variants: bool = False,
    present: Present | None = None,
    tell: Tell | None = None,
) -> Answer:
    """Searches the plans of a question.

    Args:
        top: number of plans that are listed.
        variants: list all plans, and not only the best of each set of degrees.
        present: search only plans that differ from this one in one choice.
        tell: receiver of the progress.

    Raises:
        SpecError: if the question has no legal plan at all, with the reason.
    """
    check_question(question)
    found = search(question, tell)
    if present is not None:
        found = with_one_change(found, present.choice)
    result = Answer(question, limits, found, present=present)
    if not found.legal:
        raise SpecError(_why_none(question))
    if not len(found):
        result.changes = changes_to_fit(question)
        return result
    distances = Distances(found)
    places = best_places(found, top, variants or present is not None)
    result.cases = cases(found, places)
    groups = grouped(distances, places)
    for rank, (place, group) in enumerate(zip(places, groups, strict=True)):
        result.ranked.append(_ranked(result, rank, place, group))
    alike = distances.alike(0)
    result.alike = len(alike)
    result.to_measure = distances.spread_out(alike, TO_MEASURE)
    result.simplest = simplest(found, alike)
    result.pareto = pareto(found)
    result.rules = rules_of(found)
    longest = limits.longest_iteration_s(result.tokens, question.gpus)
    if longest < float("inf"):
        result.meets = bool(found.total_s[0] <= longest)
        if not result.meets:
            result.changes = changes_to_meet(question, limits)
    return result


def _ranked(result: Answer, rank: int, place: int, group: int) -> Ranked:
    question, limits = result.question, result.limits
    choice, stack = result.found.choice(place), result.stack_at(place)
    prediction = predict(setup_of_choice(question, choice, stack))
    return Ranked(
        place=place,
        choice=choice,
        prediction=prediction,
        group=group,
        regret=max(case.regrets[rank] for case in result.cases),
        unfitted=never_fitted(choice, question.workload, question.cluster.gpus_per_node, stack),
        run_s=limits.run_s(prediction.total_s, result.tokens),
        run_dollars=limits.run_dollars(prediction.total_s, result.tokens, question.gpus),
    )


def _why_none(question: Question) -> str:
    """Returns why a question has no legal plan."""
    from dataclasses import replace

    words = (
        f"no legal plan for {question.workload.name} on {question.gpus} GPUs with global batch "
        f"{question.global_batch}"
    )
    heads, layers = question.workload.heads, question.layers
    possible = f"TP divides {heads} heads, PP is at most {layers} layers, and DP divides the batch"
    if question.constraints and search(replace(question, constraints=())).legal:
        listed = ", ".join(each.text for each in question.constraints)
        return f"{words} meets the constraints {listed}; leave one out or change it: {possible}"
    gpus = question.gpus
    return (
        f"{words}: TP x PP x CP x DP must be {gpus}, where {possible}; a batch that is a multiple of {gpus} has "
        "plans"
    )
