"""The other changes to a job: another network, no straggler, a rank's load for all, overlap off, no resharding."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from wirecost.diagnostics import diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif.graph import HOST, JOIN, NONE, SYNC, WORK, Collective, RankGraph, Step
from wirecost.whatif.network import NetworkModel
from wirecost.whatif.scenario import Scenario, copy_step

_RESHARD = re.compile(r"FSDP::(all_gather|pre_backward|backward_prefetch)")


def with_network(scenario: Scenario, network: NetworkModel) -> Scenario:
    """Returns the job on another network: collectives take what they take there, and share each rank's link."""
    middle, low, high = [], [], []
    unknown = 0
    for collective, recorded in zip(scenario.collectives, scenario.transfer_ns, strict=True):
        transfer = network.transfer(collective)
        if transfer is None:
            unknown += 1
            middle.append(recorded)
            low.append(0.0)
            high.append(recorded)
            continue
        middle.append(transfer.seconds * 1e9)
        low.append(transfer.low * 1e9)
        high.append(transfer.high * 1e9)
    diagnostics = [*scenario.diagnostics, *network.diagnostics]
    if unknown:
        diagnostics.append(
            diagnostic(
                "transfer_unknown",
                f"the bytes of {unknown} collectives aren't recorded: their transfer lies between nothing and what "
                "it took in the recording",
            )
        )
    return Scenario(
        scenario.graph, scenario.ranks, scenario.collectives, middle, low, high, shared=True, diagnostics=diagnostics
    )


def scaled_communication(scenario: Scenario, factor: float) -> Scenario:
    """Returns the job with transfers that are `factor` times as fast.

    Raises:
        WirecostError: for a factor that isn't positive.
    """
    if factor <= 0:
        raise WirecostError("--scale-communication: the factor must be positive; 2 makes transfers twice as fast")
    return Scenario(
        scenario.graph,
        scenario.ranks,
        scenario.collectives,
        [t / factor for t in scenario.transfer_ns],
        [t / factor for t in scenario.low_ns],
        [t / factor for t in scenario.high_ns],
        shared=scenario.shared,
        diagnostics=scenario.diagnostics,
    )


def fastest_rank(scenario: Scenario) -> int:
    """Returns the number of the rank that waits longest for others in its collectives: it has least to do."""
    waited = []
    for rank in scenario.graph.ranks:
        total = 0.0
        for step in rank.steps[1:] or rank.steps:
            for index, kind in enumerate(step.kind):
                if kind == JOIN:
                    join = step.join[index]
                    total += max(step.length[index] - scenario.graph.collectives[join].transfer_ns, 0.0)
        waited.append(total)
    return int(np.argmax(waited))


def like_rank(scenario: Scenario, number: int | None) -> Scenario:
    """Returns the job in which each rank has the load of a rank (None: of the fastest rank of its kind).

    Ranks are of one kind where they call the same collectives with the same sizes in every step. Kernels of the
    model rank that ran beside a collective that waited are given back what it took from them.

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
    fastest = fastest_rank(scenario) if number is None else number
    models: dict[int, int] = {}
    for members in kinds.values():
        model = fastest if fastest in members else _least_busy(ranks, members)
        for index in members:
            models[index] = model
    relieved = {model: relieved_steps(scenario, model) for model in set(models.values())}
    changed = [
        _as(relieved[models[index]], scenario.ranks[index]) if models[index] != index else relieved[index]
        for index in range(len(ranks))
    ]
    return Scenario(
        scenario.graph, changed, scenario.collectives, scenario.transfer_ns, scenario.low_ns, scenario.high_ns,
        shared=scenario.shared, diagnostics=scenario.diagnostics,
    )  # fmt: skip


def _signature(scenario: Scenario, steps: Sequence[Step]) -> tuple:
    found = []
    for step in steps[1:] or steps:
        joins = [scenario.collectives[j] for k, j in zip(step.kind, step.join, strict=True) if k == JOIN]
        found.append(tuple((c.op, c.bytes) for c in joins))
    return tuple(found)


def _least_busy(ranks: Sequence[RankGraph], members: list[int]) -> int:
    def busy(index: int) -> float:
        return sum(
            length
            for step in ranks[index].steps[1:] or ranks[index].steps
            for kind, length in zip(step.kind, step.length, strict=True)
            if kind == WORK
        )

    return min(members, key=busy)


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


def relieved_steps(scenario: Scenario, number: int) -> list[Step]:
    """Returns a rank's steps with kernels that ran beside a waiting collective as fast as they run alone."""
    rank = scenario.graph.ranks[number]
    slowdowns = rank.record.trace.slowdowns
    waited = transferred = 0.0
    for step in rank.steps:
        for index, kind in enumerate(step.kind):
            if kind == JOIN:
                transfer = float(scenario.graph.collectives[step.join[index]].transfer_ns)
                transferred += transfer
                waited += max(step.length[index] - transfer, 0.0)
    if not slowdowns or waited + transferred <= 0:
        return list(scenario.ranks[number])
    taken = sum(s.kernels for s in slowdowns)
    ratio = sum(s.ratio * s.kernels for s in slowdowns) / taken
    back = max(1 - 1 / ratio, 0.0) * waited / (waited + transferred)
    device = rank.record.recorded.device
    comm = np.flatnonzero(device.comm)
    spans = np.stack([device.start_ns[comm], device.end_ns[comm]], axis=1)
    from wirecost.breakdown.intervals import measure_before, merge

    merged = merge(spans)
    covered = measure_before(merged, device.end_ns) - measure_before(merged, device.start_ns)
    length = np.maximum(device.end_ns - device.start_ns, 1)
    share = np.where(device.comm, 0.0, covered / length)
    found = []
    for step in scenario.ranks[number]:
        changed = copy_step(step)
        for index, row in enumerate(step.row):
            if row >= 0 and step.kind[index] == WORK and share[row] > 0:
                changed.length[index] *= 1 - back * float(share[row])
        found.append(changed)
    return found


def without_overlap(scenario: Scenario) -> Scenario:
    """Returns the job in which each collective ends before computing that was launched after it begins."""
    changed = []
    for rank, steps in zip(scenario.graph.ranks, scenario.ranks, strict=True):
        streams = {int(s): i for i, s in enumerate(np.unique(rank.record.recorded.device.stream))}
        main = streams[rank.main]
        new_steps = []
        for step in steps:
            new = copy_step(step)
            last = NONE
            for index, kind in enumerate(step.kind):
                if kind == JOIN and step.stream[index] != main:
                    last = index
                elif kind == WORK and step.stream[index] == main and last != NONE:
                    if step.ref[index] > step.ref[last]:
                        new.waits[index] = [*new.waits.get(index, []), (0, last)]
                        last = NONE
            new_steps.append(new)
        changed.append(new_steps)
    return Scenario(
        scenario.graph, changed, scenario.collectives, scenario.transfer_ns, scenario.low_ns, scenario.high_ns,
        shared=scenario.shared, diagnostics=scenario.diagnostics,
    )  # fmt: skip


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
    return Scenario(
        scenario.graph, changed, scenario.collectives, scenario.transfer_ns, scenario.low_ns, scenario.high_ns,
        shared=scenario.shared, diagnostics=scenario.diagnostics,
        bound_only="computing can't hide more than this: which waits a better overlap removes isn't in a trace",
    )  # fmt: skip


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
    if not removed:
        raise WirecostError(
            "--reshard-after-forward off: the traces show no all-gather in the backward pass of FSDP2, so there is "
            "nothing to leave out"
        )
    return Scenario(
        scenario.graph, changed, scenario.collectives, scenario.transfer_ns, scenario.low_ns, scenario.high_ns,
        shared=scenario.shared, diagnostics=scenario.diagnostics,
    )  # fmt: skip


def _backward_gathers(rank: RankGraph) -> dict[int, np.ndarray]:
    """Returns for each thread of the backward pass the (start, end) of FSDP's gathers on the host."""
    backward = {a.thread for a in rank.record.recorded.cpu_annotations if a.name.startswith("FSDP::pre_backward")}
    found: dict[int, list[tuple[int, int]]] = {}
    for annotation in rank.record.recorded.cpu_annotations:
        if annotation.thread in backward and re.match(r"FSDP::(all_gather|all_gather_copy_out)\b", annotation.name):
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


__all__ = ["HOST", "SYNC", "fastest_rank", "like_rank", "scaled_communication", "with_network"]
