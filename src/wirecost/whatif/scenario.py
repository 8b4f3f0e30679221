"""What is replayed: each rank's steps and the collectives, as recorded or as a question changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wirecost.diagnostics import Diagnostic
from wirecost.whatif.contention import alone, ratio_of
from wirecost.whatif.nodes import Collective, Graph, Step
from wirecost.whatif.simulate import RankTimes, Speeds, replay


@dataclass
class Scenario:
    """Steps of each rank in order (the first of the recording included), and the joins that they refer to.

    `low_ns` and `high_ns` bound the transfers where `transfer_ns` isn't known well; equal to it elsewhere. Of
    each, `wire_ns` is for its bytes. After a pause as long, `bucket_ns` of them may pass at once; `bucket_share`
    of that is taken to do so.
    """

    graph: Graph
    ranks: list[list[Step]]
    collectives: list[Collective]
    transfer_ns: list[float]
    low_ns: list[float] = field(default_factory=list)
    high_ns: list[float] = field(default_factory=list)
    shared: bool = False
    wire_ns: list[float] = field(default_factory=list)
    bucket_ns: float = 0.0
    bucket_share: float = 0.5
    diagnostics: list[Diagnostic] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)  # of each rank: kernels beside collectives to kernels alone
    extra_ns: float = 0.0  # what an iteration takes longer at most, which no replay shows
    bound_only: str | None = None  # why only bounds are known, whatever the interval says

    def __post_init__(self) -> None:
        self.ratios = self.ratios or [ratio_of(rank) for rank in self.graph.ranks]
        self.low_ns = self.low_ns or list(self.transfer_ns)
        self.high_ns = self.high_ns or list(self.transfer_ns)

    @property
    def members(self) -> list[int]:
        return [c.members for c in self.collectives]

    @property
    def queue(self) -> int:
        return max(rank.queue for rank in self.graph.ranks)

    @property
    def certain(self) -> bool:
        return self.low_ns == self.transfer_ns == self.high_ns and not self.bucket_ns

    def shortest(self) -> tuple[Scenario, list[float]]:
        """Returns the job with all of the bucket, and the shortest transfers."""
        return replace(self, bucket_share=1.0), self.low_ns

    def longest(self) -> tuple[Scenario, list[float]]:
        """Returns the job without the bucket, and the longest transfers."""
        return replace(self, bucket_share=0.0), self.high_ns

    def run(
        self,
        speeds: Speeds,
        order: Sequence[int],
        keep: Sequence[int] = (),
        transfers: Sequence[float] | None = None,
        begins_ns: Sequence[float] = (),
    ) -> list[RankTimes]:
        """Replays the steps with these numbers, one after the other."""
        bucket_ns = self.bucket_share * self.bucket_ns
        speeds = replace(speeds, queue=self.queue, shared=self.shared, bucket_ns=bucket_ns)
        return replay(
            [[steps[number] for number in order] for steps in self.ranks],
            [rank.streams for rank in self.graph.ranks],
            self.transfer_ns if transfers is None else transfers,
            self.members,
            speeds,
            wire_ns=self.wire_ns,
            keep=keep,
            begins_ns=begins_ns,
        )


def as_recorded(graph: Graph) -> Scenario:
    """Returns the job as it was recorded, kernels as long as they are alone (see `contention`)."""
    transfers = [float(c.transfer_ns) for c in graph.collectives]
    return Scenario(graph, alone(graph), list(graph.collectives), transfers)


def copy_step(step: Step) -> Step:
    """Returns a step whose columns can be changed."""
    return Step(
        list(step.kind), list(step.ref), list(step.stream), list(step.gap), list(step.delay), list(step.length),
        list(step.join), list(step.row), dict(step.waits), step.first, step.last_host,
    )  # fmt: skip
