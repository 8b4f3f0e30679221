"""Changes of overlap: computing waits for every collective, or for as few as possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wirecost.whatif.nodes import JOIN, NONE, WORK, Step
from wirecost.whatif.scenario import Scenario, copy_step


def without_overlap(scenario: Scenario) -> Scenario:
    """Returns the job in which computing that is launched after a collective waits for its end."""
    changed = []
    for rank, steps in zip(scenario.graph.ranks, scenario.ranks, strict=True):
        streams = {int(s): i for i, s in enumerate(np.unique(rank.record.recorded.device.stream))}
        new_steps = []
        moved: dict[int, int] = {}
        for step in steps:
            new, moved = _blocking(step, streams[rank.main], moved)
            new_steps.append(new)
        changed.append(new_steps)
    return replace(scenario, ranks=changed)


def _blocking(step: Step, main: int, moved_before: dict[int, int]) -> tuple[Step, dict[int, int]]:
    """Returns a step in which the main stream waits for each collective, and where its nodes have gone."""
    computing = [i for i, k in enumerate(step.kind) if k == WORK and step.stream[i] == main and step.ref[i] >= 0]
    launches = np.array([step.ref[i] for i in computing], dtype=np.int64)
    key = np.arange(len(step.kind), dtype=float)
    waits_on: dict[int, list[int]] = {}
    for index, kind in enumerate(step.kind):
        if kind != JOIN or step.stream[index] == main or step.ref[index] < 0:
            continue
        after = int(np.searchsorted(launches, step.ref[index], side="right"))
        if after == len(computing):
            continue
        waiter = computing[after]
        waits_on.setdefault(waiter, []).append(index)
        # A node comes after what it waits for.
        key[index] = min(key[index], waiter - 0.5)
    order = np.argsort(key, kind="stable").tolist()
    place = {old: new for new, old in enumerate(order)}

    def to(position: int) -> int:
        return place[position] if position >= 0 else NONE

    columns = ("kind", "stream", "gap", "delay", "length", "join", "row")
    new = replace(step, **{name: [getattr(step, name)[old] for old in order] for name in columns})
    new.ref = [to(step.ref[old]) for old in order]
    new.waits = {
        to(index): [
            (back, to(at) if back == 0 else moved_before.get(at, at) if back == 1 else at) for back, at in places
        ]
        for index, places in step.waits.items()
    }
    for waiter, joins in waits_on.items():
        new.waits[to(waiter)] = [*new.waits.get(to(waiter), []), *((0, to(join)) for join in joins)]
    new.first, new.last_host = to(step.first), to(step.last_host)
    return new, place


def with_full_overlap(scenario: Scenario) -> Scenario:
    """Returns the job in which computing waits for collectives only at the end of a step: a bound, not a plan."""
    changed = []
    for steps in scenario.ranks:
        new_steps = []
        for step in steps:
            new = copy_step(step)
            waiting = [
                index for index, places in step.waits.items()
                if step.kind[index] == WORK and any(b == 0 and step.kind[at] == JOIN for b, at in places)
            ]  # fmt: skip
            for index in sorted(waiting)[:-1]:
                new.waits[index] = [(b, at) for b, at in step.waits[index] if b != 0 or step.kind[at] != JOIN]
            new_steps.append(new)
        changed.append(new_steps)
    return replace(
        scenario,
        ranks=changed,
        bound_only="computing can't hide more than this: which waits a better overlap removes isn't in a trace",
    )
