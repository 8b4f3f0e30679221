"""What reports show of a result: a few numbers, where the breakdown holds every sample.

A study of thousands of experiments fits into memory as summaries, and not as breakdowns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.breakdown import (
    Collective,
    NetworkRecord,
    PeakMemory,
    Phase,
    Profile,
    ResultWarning,
    Spread,
    samples,
)
from wirecost.breakdown.decode import decode_breakdown, to_model
from wirecost.breakdown.memory import largest_peak
from wirecost.collectives.traffic import ring_bytes_sent

PARTS = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of one collective, of those whose size, time and expectation are known: each rank's median over
    calls, the mean over ranks; `expected_ns` is what bytes and the measured link rate give."""

    bytes_per_call: float
    measured_ns: float
    expected_ns: float
    calls: int


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """The profiled window: shares of an iteration as `Profile` has them, None where unknown, with the reason."""

    source: str
    asked_iterations: int
    overlapped: float | None
    exposed_comm: float | None
    overlap: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A breakdown's numbers, each as the breakdown's own method gives it.

    `iteration_times_ns` holds the slowest rank's time of each iteration. `part_shares` (by field of `Parts`) and
    `phases_ns` spread over iterations. `sent_bytes` is what a rank sends in an iteration, the mean over ranks,
    with each collective on a ring (docs/explanation/measurement.md). `losses` are those of the global batch, by
    iteration. `expert_imbalance` is the largest load of a rank's experts over the mean. None is unknown.
    """

    title: str
    iteration_times_ns: tuple[int, ...]
    iteration_ns: Spread | None
    part_shares: dict[str, Spread | None]
    phases_ns: dict[Phase, Spread]
    tokens_per_s: float | None
    sent_bytes: float | None
    losses: tuple[float, ...]
    expert_imbalance: Spread | None
    transfer: Transfer | None
    network: NetworkRecord | None
    peak: PeakMemory | None
    profile: ProfileSummary | None
    warnings: tuple[ResultWarning, ...]

    @property
    def comm_fraction(self) -> Spread | None:
        """Exposed communication over iteration time."""
        return self.part_shares["exposed_comm_ns"]


def summarise(content: bytes) -> Summary:
    """The summary of a breakdown's JSON.

    Raises:
        pydantic.ValidationError: if it isn't a breakdown.
    """
    b = decode_breakdown(content)
    groups = samples.by_iteration(b.iterations).values()
    times_ns = samples.iteration_times_ns(groups)
    iteration_ns = Spread.of(times_ns)
    recorded = {phase for iteration in b.iterations for phase in iteration.phases}
    spent = {phase: samples.phase_ns(groups, phase) for phase in Phase if phase in recorded}
    peak = largest_peak(b.peak_memory, b.world_size)
    return Summary(
        title=b.title,
        iteration_times_ns=tuple(times_ns),
        iteration_ns=iteration_ns,
        part_shares={part: samples.part_share(groups, part) for part in PARTS},
        phases_ns={phase: spread for phase, spread in spent.items() if spread is not None},
        tokens_per_s=samples.tokens_per_s(b.tokens_per_iteration, iteration_ns),
        sent_bytes=_sent_bytes(b.collectives, len(b.iterations)),
        losses=samples.losses(groups),
        expert_imbalance=samples.expert_imbalance(groups),
        transfer=_transfer(b.collectives),
        network=to_model(NetworkRecord, b.network) if b.network else None,
        peak=to_model(PeakMemory, peak) if peak else None,
        profile=_profile(to_model(Profile, b.profile)) if b.profile else None,
        warnings=tuple(to_model(ResultWarning, w) for w in b.warnings),
    )


def _sent_bytes(collectives: Sequence[Collective], iterations: int) -> float | None:
    """None where a collective or its size isn't known."""
    total = 0.0
    for c in collectives:
        if c.bytes is None or c.group_size is None:
            return None
        try:
            total += ring_bytes_sent(c.op, c.bytes, c.group_size)
        except ValueError:  # an operation that only somebody else's breakdown has
            return None
    return total / iterations if iterations else None


def _transfer(collectives: Sequence[Collective]) -> Transfer | None:
    known = [
        (c.count, c.bytes, c.transfer_median_ns, c.expected_ns)
        for c in collectives
        if c.bytes is not None and c.transfer_median_ns is not None and c.expected_ns is not None
    ]
    calls = sum(count for count, *_ in known)
    expected_ns = sum(expected for *_, expected in known)
    if not calls or not expected_ns:
        return None
    return Transfer(
        sum(size for _, size, *_ in known) / calls,
        sum(transfer for *_, transfer, _ in known) / len(known),
        expected_ns / calls,
        known[0][0],
    )


def _profile(profile: Profile) -> ProfileSummary:
    return ProfileSummary(
        source=profile.source,
        asked_iterations=profile.asked_iterations,
        overlapped=profile.share("overlapped_ns"),
        exposed_comm=profile.share("exposed_comm_ns"),
        overlap=profile.overlap(),
        reason=profile.reason,
    )
