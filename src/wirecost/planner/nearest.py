"""What would have to change where no plan fits or meets the limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.planner.limits import Limits
from wirecost.planner.question import Question
from wirecost.planner.search import Found, search
from wirecost.spec import with_nodes

MOST_GPUS = 1 << 20
MOST_DOUBLINGS = 8


@dataclass(frozen=True)
class Change:
    """A change of the question with which a plan fits, or meets the limits.

    Attributes:
        what: the change, for people.
        total_s: iteration time in seconds of the fastest plan then.
        label: that plan.
        memory_bytes: its memory.
    """

    what: str
    total_s: float
    label: str
    memory_bytes: float


def changes_to_fit(question: Question) -> list[Change]:
    """Returns the nearest changes with which a plan fits: without one of the constraints, without headroom, on
    more GPUs, with other batches or shorter sequences."""
    tried: list[tuple[str, Question]] = []
    for constraint in question.constraints:
        rest = tuple(each for each in question.constraints if each is not constraint)
        tried.append((f"without the constraint {constraint.text}", replace(question, constraints=rest)))
    if len(question.constraints) > 1:
        tried.append(("without any constraint", replace(question, constraints=())))
    if question.headroom:
        tried.append(("without headroom", replace(question, headroom=0.0)))
    found = [change for what, other in tried if (change := _best(what, other))]
    more = _on_more_gpus(question)
    found += [more] if more else []
    length = question.workload.sequence_length
    while not found and length >= 256 and length % 2 == 0:
        length //= 2
        workload = question.workload.model_copy(update={"sequence_length": length})
        shorter = _best(f"with sequences of {length} tokens", replace(question, workload=workload))
        found += [shorter] if shorter else []
    return found


def _on_more_gpus(question: Question) -> Change | None:
    gpus, per_node = question.gpus, question.cluster.gpus_per_node
    for _ in range(MOST_DOUBLINGS):
        gpus *= 2
        gpus = gpus if gpus <= per_node else -(-gpus // per_node) * per_node
        if gpus > MOST_GPUS:
            return None
        batch = question.global_batch if question.global_batch >= gpus else gpus
        words = f"on {gpus} GPUs" + (f", global batch {batch}" if batch != question.global_batch else "")
        other = replace(question, gpus=gpus, global_batch=batch, cluster=with_nodes(question.cluster, gpus))
        if change := _best(words, other):
            return change
    return None


def changes_to_meet(question: Question, limits: Limits) -> list[Change]:
    """Returns the nearest numbers of GPUs, by doubling and halving, whose fastest plan meets a deadline and a
    budget."""
    tokens = question.global_batch * question.workload.sequence_length
    per_node = question.cluster.gpus_per_node
    found: list[Change] = []
    for step in (lambda g: g * 2, lambda g: g // 2):
        gpus = question.gpus
        for _ in range(MOST_DOUBLINGS):
            gpus = step(gpus)
            if (
                gpus < 1
                or gpus > min(MOST_GPUS, question.global_batch * 1024)
                or (gpus > per_node and gpus % per_node)
            ):
                break
            other = replace(question, gpus=gpus, cluster=with_nodes(question.cluster, gpus))
            change = _best(f"on {gpus} GPUs", other)
            if change and change.total_s <= limits.longest_iteration_s(tokens, gpus):
                found.append(change)
                break
    return found


def _best(what: str, question: Question) -> Change | None:
    found: Found = search(question)
    if not len(found):
        return None
    return Change(what, float(found.total_s[0]), found.choice(0).label, float(found.memory_bytes[0]))
