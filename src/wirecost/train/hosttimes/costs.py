"""What layers and communication cost the host, derived from the times to issue iterations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wirecost.breakdown.statistics import Spread
from wirecost.spec import Device, Precision, Workload
from wirecost.train.hosttimes.variants import ONE_RANK, VARIANTS, Cost, Variant, fewer_layers

FORMAT_VERSION = 1
FEWEST_ROUNDS = 3
"""Number of rounds from which on their quartiles say something."""
FEWEST_KEPT = 0.5
"""Smallest share of a variant's iterations in which the device has to keep pace with the host."""


@dataclass
class Turns:
    """The times of one variant.

    Attributes:
        workload: the workload that was measured.
        device: name of the GPU. None on a CPU.
        calls: how often an iteration calls each operation of each group.
        issue_s: seconds to issue each iteration, in a list for each round.
        baseline_s: the same of the variant's own baseline, if it has one.
        kept: whether the device kept pace with the host, in each iteration. Empty on a CPU.
        failure: why there are no further times, in one line.
    """

    workload: Workload | None = None
    device: str | None = None
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    issue_s: list[list[float]] = field(default_factory=list)
    baseline_s: list[list[float]] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    failure: str | None = None

    @property
    def unusable(self) -> str | None:
        """Why the times say nothing about the host, in one line. None if they do."""
        if self.failure is not None:
            return self.failure
        if len(self.issue_s) < FEWEST_ROUNDS:
            return f"only {len(self.issue_s)} of at least {FEWEST_ROUNDS} rounds fit into the time"
        if self.kept and statistics.fmean(self.kept) < FEWEST_KEPT:
            slower = 1 - statistics.fmean(self.kept)
            return (
                f"the device was slower than its host in {slower:.0%} of the iterations, so that the host may "
                "have waited; take a smaller workload"
            )
        return None


@dataclass(frozen=True)
class HostCost:
    """What one kind of communication or of layer costs the host.

    Attributes:
        calls: number of calls in an iteration, as the engine issued them. Of a layer, the number of layers by
            which the variants differ, times that of micro-batches. None if none was issued.
        iteration_s: the time in seconds that an iteration takes longer to issue with them. 0 if that can't be told
            from 0. None if it is unknown.
        difference_s: the differences of the rounds, in seconds of an iteration. None without a measurement.
        note: why the time is unknown or 0, in one line. None otherwise.
    """

    cost: Cost
    calls: int | None
    iteration_s: float | None
    difference_s: Spread | None
    note: str | None

    @property
    def each_s(self) -> float | None:
        """Seconds of one call. None if they are unknown."""
        if self.iteration_s is None or not self.calls:
            return None
        return self.iteration_s / self.calls

    @property
    def each_spread_s(self) -> Spread | None:
        """Median and quartiles of the rounds, in seconds of one call."""
        spread = self.difference_s
        if spread is None or not self.calls:
            return None
        return Spread(spread.median / self.calls, spread.q1 / self.calls, spread.q3 / self.calls, spread.n)


@dataclass(frozen=True)
class MeasuredHost:
    """The times that layers and communication cost a host.

    Attributes:
        workload: the workload that was measured, perhaps with shorter sequences and fewer layers than were asked
            for.
        device_name: the GPU. None on a CPU.
        issue_s: seconds to issue an iteration, by variant.
    """

    workload: Workload
    precision: Precision
    device: Device
    device_name: str | None
    micro_batch: int
    micro_batches: int
    issue_s: Mapping[str, Spread]
    costs: Mapping[Cost, HostCost]

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        return {
            "format_version": FORMAT_VERSION,
            "workload": self.workload.model_dump(mode="json", exclude_none=True),
            "precision": str(self.precision),
            "device": str(self.device),
            "device_name": self.device_name,
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "issue_s": {name: _spread(spread) for name, spread in self.issue_s.items()},
            "costs": {
                str(cost): {
                    "calls": each.calls,
                    "seconds": each.each_s,
                    "spread_s": _spread(each.each_spread_s),
                    "note": each.note,
                }
                for cost, each in self.costs.items()
            },
        }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else {"median": spread.median, "q1": spread.q1, "q3": spread.q3, "n": spread.n}


def derive_layers(
    fewer: Turns, other: Turns, one_rank: Turns, workload: Workload, micro_batches: int
) -> dict[Cost, HostCost]:
    """Returns what a layer of a GPT and a layer of a Llama cost.

    Args:
        fewer: the times of one rank with half of the layers.
        other: the times of one rank with as many layers of the other kind.
        workload: what one rank trained.
    """
    added = micro_batches * (workload.layers - fewer_layers(workload))
    own = _layers(fewer, one_rank, added, [(one_rank, 1.0), (fewer, -1.0)])
    # `other` has as many layers as `one_rank`, of the other kind, and the same embedding and loss.
    share = (workload.layers - fewer_layers(workload)) / workload.layers
    terms = [(one_rank, 1.0 - share), (fewer, -1.0), (other, share)]
    another = _layers(other if other.unusable else fewer, one_rank, added, terms)
    mine, others = (Cost.GATED_LAYER, Cost.LAYER) if workload.gated else (Cost.LAYER, Cost.GATED_LAYER)
    return {cost: replace(found, cost=cost) for cost, found in ((mine, own), (others, another))}


def _layers(turns: Turns, one_rank: Turns, added: int, terms: Sequence[tuple[Turns, float]]) -> HostCost:
    """Returns the cost of `added` layers, from medians of rounds that are added with factors."""
    reason = turns.unusable
    if reason is None and one_rank.unusable is not None:
        reason = f"{ONE_RANK}, with which it is compared: {one_rank.unusable}"
    if reason is not None:
        return HostCost(Cost.LAYER, added, None, None, reason)
    rounds = zip(
        *([factor * statistics.median(turn) for turn in own.issue_s] for own, factor in terms), strict=False
    )
    return _judged(Cost.LAYER, added, Spread.of([sum(values) for values in rounds]))


def derive(cost: Cost, turns: Turns, one_rank: Turns) -> HostCost:
    """Returns what a kind of communication costs, from the times of its variant and of one rank.

    Args:
        turns: the times of the variant of VARIANTS that has this communication.
        one_rank: the times of the variant without any. A variant with its own baseline is compared with that.
    """
    calls = _counted(VARIANTS[cost], turns)
    own = bool(turns.baseline_s)
    reason = turns.unusable
    if reason is None and not own and one_rank.unusable is not None:
        reason = f"{ONE_RANK}, with which it is compared: {one_rank.unusable}"
    if reason is not None:
        return HostCost(cost, calls, None, None, reason)
    baseline = turns.baseline_s if own else one_rank.issue_s
    return _judged(cost, calls, Spread.of(_differences(turns.issue_s, baseline)))


def _judged(cost: Cost, calls: int | None, spread: Spread | None) -> HostCost:
    """Returns a cost by the quartiles of its rounds."""
    assert spread is not None
    if not calls:
        return HostCost(cost, None, None, spread, "the engine issued none")
    if spread.q3 < 0:
        note = "the iteration was issued faster with them than without: the difference isn't theirs"
        return HostCost(cost, calls, None, spread, note)
    if spread.q1 <= 0:
        return HostCost(cost, calls, 0.0, spread, "can't be told from 0: the quartiles have different signs")
    return HostCost(cost, calls, spread.median, spread, None)


def _differences(turns: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> list[float]:
    """Returns the difference of the medians of each round that both have."""
    return [
        statistics.median(with_them) - statistics.median(without)
        for with_them, without in zip(turns, baseline, strict=False)
    ]


def _counted(variant: Variant, turns: Turns) -> int | None:
    calls = sum(
        number
        for (op, group), number in turns.calls.items()
        if group == variant.group and (variant.operations is None or op in variant.operations)
    )
    return calls or None
