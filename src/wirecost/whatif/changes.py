"""Changes to a job: another network, faster transfers, no straggler, a rank's load for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wirecost.diagnostics import diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif.measure import iteration_ns
from wirecost.whatif.network import NetworkModel, Transfer
from wirecost.whatif.nodes import JOIN, Step
from wirecost.whatif.scenario import Scenario, copy_step
from wirecost.whatif.simulate import Speeds


def with_network(scenario: Scenario, network: NetworkModel) -> Scenario:
    """Returns the job on another network: collectives take what they take there, and share each rank's link."""
    middle, low, high = [], [], []
    wire = [0.0] * len(scenario.collectives)
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
        wire[number] = transfer.wire * 1e9
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
        scenario, transfer_ns=middle, low_ns=low, high_ns=high, wire_ns=wire, bucket_ns=network.bucket_s * 1e9,
        shared=True, ratios=ratios, diagnostics=diagnostics,
    )  # fmt: skip


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
        wire_ns=[t / factor for t in scenario.wire_ns],
        bucket_ns=scenario.bucket_ns / factor,
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


__all__ = ["fastest_rank", "like_rank", "scaled_communication", "with_network"]
