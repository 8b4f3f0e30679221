"""The other changes to a job: another network, no straggler, a rank's load for all, overlap off, no resharding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirecost.diagnostics import diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif.graph import JOIN, NONE, WORK, Collective, RankGraph, Step
from wirecost.whatif.measure import iteration_ns
from wirecost.whatif.network import NetworkModel, Transfer
from wirecost.whatif.scenario import Scenario, copy_step
from wirecost.whatif.simulate import Speeds


def with_network(scenario: Scenario, network: NetworkModel) -> Scenario:
    """Returns the job on another network: collectives take what they take there, and share each rank's link."""
    middle, low, high = [], [], []
    unknown = 0
    used = {join for steps in scenario.ranks for step in steps for join in step.join}
    for number, (collective, recorded) in enumerate(zip(scenario.collectives, scenario.transfer_ns, strict=True)):
        transfer = network.transfer(collective) if number in used else Transfer(0.0, 0.0, 0.0)
        if transfer is None:
            unknown += 1
            middle.append(recorded)
            low.append(0.0)
            high.append(recorded)
            continue
        # What other ranks made this one wait for may stay or go, where their traces are missing.
        middle.append(transfer.seconds * 1e9 + collective.waited_ns / 2)
        low.append(transfer.low * 1e9)
        high.append(transfer.high * 1e9 + collective.waited_ns)
    diagnostics = [*scenario.diagnostics, *network.diagnostics]
    if unknown:
        diagnostics.append(
            diagnostic(
                "transfer_unknown",
                f"the bytes of {unknown} collectives aren't recorded: their transfer lies between nothing and "
                "what it took in the recording",
            )
        )
    ratios = [1.0] * len(scenario.ratios) if network.sockets else scenario.ratios
    return replace(
        scenario, transfer_ns=middle, low_ns=low, high_ns=high, shared=True, ratios=ratios, diagnostics=diagnostics
    )


def scaled_communication(scenario: Scenario, factor: float) -> Scenario:
    """Returns the job with transfers that are `factor` times as fast.

    Raises:
        WirecostError: for a factor that isn't positive.
    """
    if factor <= 0:
        raise WirecostError("--scale-communication: the factor must be positive; 2 makes transfers twice as fast")
    waited = [min(c.waited_ns, t) for c, t in zip(scenario.collectives, scenario.transfer_ns, strict=True)]
    return replace(
        scenario,
        transfer_ns=[
            (t - w) / factor + w * (1 + 1 / factor) / 2 for t, w in zip(scenario.transfer_ns, waited, strict=True)
        ],
        low_ns=[t / factor for t in scenario.low_ns],
        high_ns=[(t - w) / factor + w for t, w in zip(scenario.high_ns, waited, strict=True)],
    )


def fastest_rank(scenario: Scenario, members: Sequence[int], speeds: Speeds) -> int:
    """Returns the rank (by number) whose iteration is shortest when it waits for no other rank."""
    lengths = {}
    for index in members:
        rank = scenario.graph.ranks[index]
        alone = replace(
            scenario,
            graph=replace(scenario.graph, ranks=[rank]),
            ranks=[scenario.ranks[index]],
            collectives=[replace(c, members=1) for c in scenario.collectives],
            ratios=[1.0],
        )
        lengths[index] = iteration_ns(alone, speeds)
    return min(lengths, key=lambda index: lengths[index])


def like_rank(
    scenario: Scenario, number: int | None, speeds: Speeds, only: Sequence[int] | None = None
) -> Scenario:
    """Returns the job in which each rank has the load of a rank (None: of the fastest rank of its kind).

    `only` are the numbers of the ranks that are changed, by default all.

    Ranks are of one kind where they call the same collectives with the same sizes in every step.

    Raises:
        WirecostError: if there is one rank only.
    """
    ranks = scenario.graph.ranks
    if len(ranks) < 2:
        raise WirecostError(
            "one rank's trace says nothing of stragglers: give the traces of all ranks (`wirecost trace` says how "
            "long this one waits)"
        )
    kinds: dict[tuple, list[int]] = {}
    for index, steps in enumerate(scenario.ranks):
        kinds.setdefault(_signature(scenario, steps), []).append(index)
    models: dict[int, int] = {}
    for members in kinds.values():
        model = number if number is not None and number in members else fastest_rank(scenario, members, speeds)
        for index in members:
            models[index] = model if only is None or index in only else index
    models = dict(sorted(models.items()))
    changed = [
        scenario.ranks[index] if model == index else _as(scenario.ranks[model], scenario.ranks[index])
        for index, model in models.items()
    ]
    graph = replace(
        scenario.graph, ranks=[replace(ranks[models[i]], rank=ranks[i].rank) for i in range(len(ranks))]
    )
    ratios = [scenario.ratios[models[index]] for index in range(len(ranks))]
    return replace(scenario, graph=graph, ranks=changed, ratios=ratios)


def _signature(scenario: Scenario, steps: Sequence[Step]) -> tuple:
    found = []
    for step in steps[1:] or steps:
        joins = [scenario.collectives[j] for k, j in zip(step.kind, step.join, strict=True) if k == JOIN]
        found.append(tuple((c.op, c.bytes) for c in joins))
    return tuple(found)


def _as(model: Sequence[Step], own: Sequence[Step]) -> list[Step]:
    """Returns the model's steps with the collectives of the rank itself."""
    found = []
    for step, mine in zip(model, own, strict=False):
        changed = copy_step(step)
        joins = [j for k, j in zip(mine.kind, mine.join, strict=True) if k == JOIN]
        places = [i for i, k in enumerate(step.kind) if k == JOIN]
        if len(joins) == len(places):
            for place, join in zip(places, joins, strict=True):
                changed.join[place] = join
        found.append(changed)
    return found


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


__all__ = ["fastest_rank", "like_rank", "scaled_communication", "with_network"]
