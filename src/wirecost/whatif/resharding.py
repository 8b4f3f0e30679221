"""FSDP's resharding: whether the backward pass gathers parameters again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirecost.errors import WirecostError
from wirecost.whatif.nodes import JOIN, NONE, WORK, Collective, RankGraph, Step
from wirecost.whatif.scenario import Scenario, copy_step


def without_resharding(scenario: Scenario) -> Scenario:
    """Returns an FSDP job that keeps its parameters after the forward pass: the backward pass gathers nothing.

    Raises:
        WirecostError: if the traces show no all-gather in a backward pass of FSDP.
    """
    changed = []
    removed = 0
    for rank, steps in zip(scenario.graph.ranks, scenario.ranks, strict=True):
        spans = _backward_gathers(rank)
        new_steps = []
        for step in steps:
            new, count = _without_gathers(rank, step, spans, scenario.collectives)
            removed += count
            new_steps.append(new)
        changed.append(new_steps)
    gathers = any(c.op == "all_gather" for c in scenario.collectives)
    if not removed and gathers and any(_is_fsdp(rank) for rank in scenario.graph.ranks):
        return scenario
    if not removed:
        raise WirecostError(
            "--reshard-after-forward off: the traces show no all-gather in the backward pass of FSDP2, so there "
            "is nothing to leave out"
        )
    return replace(scenario, ranks=changed)


def with_resharding(scenario: Scenario) -> Scenario:
    """Returns an FSDP job that gathers its parameters again in the backward pass.

    A job that does so already stays as it is. Of another one only bounds are known: the gathers are hidden behind
    computing, or none of them is.

    Raises:
        WirecostError: if the traces show no all-gather.
    """
    ranks = scenario.graph.ranks
    if any(len(spans) for rank in ranks for spans in _backward_gathers(rank).values()):
        return scenario
    gathered = []
    for steps in scenario.ranks:
        for step in steps[1:] or steps:
            joins = [step.join[i] for i, kind in enumerate(step.kind) if kind == JOIN]
            gathered.append(
                sum(scenario.transfer_ns[j] for j in joins if scenario.collectives[j].op == "all_gather")
            )
    if not any(gathered):
        raise WirecostError(
            "--reshard-after-forward on: the traces show no all-gather of FSDP's parameters, so there is nothing "
            "to reshard"
        )
    return replace(
        scenario,
        extra_ns=float(np.mean(gathered)),
        bound_only="how much of gathering again the backward pass hides isn't in the recording",
    )


def _is_fsdp(rank: RankGraph) -> bool:
    return any(a.name.startswith("FSDP::") for a in rank.record.recorded.cpu_annotations)


def _backward_gathers(rank: RankGraph) -> dict[int, np.ndarray]:
    """Returns for each thread of the backward pass the (start, end) of FSDP's gathers on the host."""
    backward = {a.thread for a in rank.record.recorded.cpu_annotations if a.name.startswith("FSDP::pre_backward")}
    found: dict[int, list[tuple[int, int]]] = {}
    for annotation in rank.record.recorded.cpu_annotations:
        if annotation.thread in backward and re.match(
            r"FSDP::(all_gather|all_gather_copy_out)\b", annotation.name
        ):
            found.setdefault(annotation.thread, []).append((annotation.start_ns, annotation.end_ns))
    return {thread: np.array(sorted(spans), dtype=np.int64) for thread, spans in found.items()}


def _without_gathers(
    rank: RankGraph, step: Step, spans: dict[int, np.ndarray], collectives: Sequence[Collective]
) -> tuple[Step, int]:
    new = copy_step(step)
    recorded = rank.record.recorded
    launches = recorded.launches
    count = 0
    emptied: set[int] = set()
    for index, row in enumerate(step.row):
        if row < 0 or recorded.launch[row] < 0:
            continue
        call = int(recorded.launch[row])
        mine = spans.get(int(launches.thread[call]))
        if mine is None or not len(mine):
            continue
        at = int(np.searchsorted(mine[:, 0], launches.start_ns[call], side="right")) - 1
        if at < 0 or launches.start_ns[call] > mine[at, 1]:
            continue
        if step.kind[index] == JOIN:
            if collectives[step.join[index]].op != "all_gather":
                continue
            count += 1
            new.kind[index] = WORK
            new.join[index] = NONE
        new.length[index] = new.gap[index] = 0.0
        new.delay[index] = -1e9
        emptied.add(index)
        if step.ref[index] >= 0:
            new.gap[step.ref[index]] = new.length[step.ref[index]] = 0.0
            new.stream[step.ref[index]] = NONE
    if emptied:
        new.waits = {i: p for i, p in new.waits.items() if i not in emptied}
    return new, count
