"""Plans: which parallelism a model should be trained with on a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from wirecost.api.view import ResultView, Rows
from wirecost.planner.answer import TOP, Answer, answer
from wirecost.planner.document import document, plan_row
from wirecost.planner.explain import Explanation
from wirecost.planner.request import Request, Wishes, present_plan, request_around, request_of
from wirecost.prediction.job import JobOptions
from wirecost.prediction.predict import iteration_parts
from wirecost.spec import Workload

if TYPE_CHECKING:
    import altair

_MOST_POINTS = 3000


class PlanView(ResultView):
    """The fastest plans of a search, with 90 % intervals.

    Attributes:
        answer: all that the search found, `answer.found` with every plan that fits.
    """

    def __init__(self, answer: Answer, request: Request) -> None:
        self.answer = answer
        self.request = request

    @property
    def tables(self) -> tuple[str, ...]:
        return ("plans", "parts", "rules", "pareto", "robustness", "changes")

    @property
    def best(self) -> str | None:
        """The choices of the fastest plan as text. None if no plan fits."""
        return self.answer.ranked[0].choice.label if self.answer.ranked else None

    @property
    def fits(self) -> bool:
        """Whether any plan fits in memory and meets the constraints."""
        return bool(self.answer.ranked)

    @property
    def meets_limits(self) -> bool | None:
        """Whether the fastest plan meets the deadline and the budget. None without them."""
        return self.answer.meets

    def explain(self, first: str, second: str) -> Explanation:
        """Returns where two plans differ, part by part.

        Args:
            first, second: numbers of the list, as "1", or choices as "tp=8,pp=2".

        Raises:
            WirecostError: if no plan that fits is like that.
        """
        return self.answer.explain(first, second)

    def emit(self, framework: str, plan: str = "1") -> str:
        """Returns a plan as flags or as the configuration of a training framework.

        Args:
            framework: `torchrun`, `megatron`, `torchtitan`, `deepspeed` or `nemo`.
            plan: number of the list, or choices.

        Raises:
            WirecostError: if there is no such plan or framework.
        """
        from wirecost.planner.emit import check_target, emitted

        check_target(framework)
        return emitted(self.answer, plan, framework)

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the page with all plans as one HTML file.

        Raises:
            WirecostError: if the file can't be written, or there is no plan.
        """
        from wirecost.planner.page import write_page

        write_page(self.answer, self.request.assumed, Path(path))

    def _rows(self, table: str) -> Rows:
        if table == "plans":
            return [plan_row(self.answer, number, ranked) for number, ranked in enumerate(self.answer.ranked, 1)]
        if table == "parts":
            return [
                {"plan": number, "part": name, "seconds": seconds}
                for number, ranked in enumerate(self.answer.ranked, 1)
                for name, seconds in iteration_parts(ranked.prediction)
            ]
        data = document(self.answer, self.request.assumed)
        if table == "robustness":
            return [{**row, "regrets": str(row["regrets"])} for row in data["robustness"]]
        rows: Rows = data[table]
        return rows

    def chart(self) -> altair.Chart:
        """Returns iteration time against memory, of the fastest plans and of some of the others."""
        import altair as alt
        import numpy as np

        found = self.answer.found
        places = np.unique(np.linspace(0, max(len(found) - 1, 0), min(_MOST_POINTS, len(found))).astype(int))
        rows = [
            {
                "iteration_s": float(found.total_s[place]),
                "memory_GiB": float(found.memory_bytes[place]) / 2**30,
                "plan": found.choice(int(place)).label,
            }
            for place in places
        ]
        return (
            alt.Chart(
                alt.InlineData(values=rows), title=f"Plans of {self.answer.question.workload.name} (predicted)"
            )
            .mark_point(size=8)
            .encode(
                x=alt.X("iteration_s:Q", scale=alt.Scale(type="log"), title="iteration in s"),
                y=alt.Y("memory_GiB:Q", title="memory of the fullest rank in GiB"),
                tooltip="plan:N",
            )
            .properties(width=480)
        )

    def _headline(self) -> str:
        found, question = self.answer.found, self.answer.question
        fit = "fit" if found.is_certain else "may fit"
        lines = [f"{len(found)} of {found.legal} legal plans of {question.workload.name} {fit} (predicted)"]
        lines += [
            f"{number}: {ranked.choice.label}: {ranked.prediction.total_s * 1e3:.0f} ms, group {ranked.group}"
            for number, ranked in enumerate(self.answer.ranked, 1)
        ]
        return "\n".join(lines)


def plan(
    workload: str | Path | Workload,
    *,
    constraints: Sequence[str] = (),
    headroom: str | float | None = None,
    tokens: str | float | None = None,
    deadline: str | None = None,
    budget: str | float | None = None,
    price: float | None = None,
    schedules: str | Sequence[str] | None = None,
    may_not_fit: bool = False,
    top: int = TOP,
    change_one: bool = False,
    **job: Unpack[JobOptions],
) -> PlanView:
    """Searches the parallelism with which a model is trained fastest on a cluster.

    Example: `wirecost.plan("llama-3-70b", cluster="dgx-h100", gpus=256, global_batch=512).best`

    Args:
        workload: a preset's name, a YAML file, a Hugging Face config.json, or a Workload.
        constraints: conditions on plans, as `tp<=8`, or names of YAML files of them.
        headroom: share of the GPU's memory that stays free, as `10 %` or 0.1.
        tokens: tokens of the training run, as `300B`.
        deadline: longest time of the run, as `30 days`.
        budget: largest price of the run in US dollars.
        price: price of one GPU for an hour in US dollars. The default is the cluster's.
        schedules: pipeline schedules that may be chosen. The default is `1f1b` and `interleaved`, which were
            measured.
        may_not_fit: rank plans too that may not fit in memory.
        top: number of plans that are listed.
        change_one: search plans that differ in one choice from the one that `job` describes.
        job: see `wirecost.JobOptions`. Options of a plan fix what they name, and the rest is searched.

    Raises:
        WirecostError: if a name is unknown, or no plan is legal.
    """
    listed = schedules if schedules is None or isinstance(schedules, str) else ",".join(schedules)
    wanted = (headroom, tokens, deadline, budget, price, listed)
    texts = [None if value is None else str(value) for value in wanted]
    wishes = Wishes(tuple(constraints), *texts, ranks_uncertain=may_not_fit)
    present = present_plan(workload, job) if change_one else None
    request = (
        request_of(workload, job, wishes) if present is None else request_around(workload, job, wishes, present)
    )
    return PlanView(answer(request.question, request.limits, top=top, present=present), request)
