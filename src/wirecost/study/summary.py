"""Summaries of results for reports: a few numbers instead of the breakdown's samples.

The summaries of thousands of experiments fit into memory; their breakdowns don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wirecost.breakdown import (
    Collective,
    NetworkRecord,
    PeakMemory,
    Phase,
    Profile,
    Share,
    Spread,
    samples,
    shares,
)
from wirecost.breakdown.decode import decode_breakdown, to_model
from wirecost.breakdown.memory import largest_peak
from wirecost.collectives.traffic import ring_bytes_sent
from wirecost.diagnostics import Diagnostic

PARTS = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of one collective with known size, time and expectation: each rank's median over calls,
    averaged over ranks. `expected_ns` is bytes / measured link rate.
    """

    bytes_per_call: float
    measured_ns: float
    expected_ns: float
    calls: int


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """The shares of an iteration in the profiled window: medians over its iterations, each with the mean over its
    ranks. None if unknown, with the reason.
    """

    source: str
    asked_iterations: int
    overlapped: float | None
    exposed_comm: float | None
    overlap: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of a breakdown, each computed by the breakdown's method.

    `iteration_times_ns` holds the slowest rank's time of each iteration. `part_shares` (by field of `Parts`) and
    `phases_ns` are spreads over iterations. `shares` (by field of `Parts`) are those that are shown: those of the
    profiled window if the iterations were only timed. `sent_bytes` is the number of bytes that a rank sends in an
    iteration, averaged over ranks, with each collective on a ring (docs/explanation/measurement.md). `losses` are
    those of the global batch by iteration. `expert_imbalance` is the largest load of a rank's experts over the
    mean. None is unknown.
    """

    title: str
    iteration_times_ns: tuple[int, ...]
    iteration_ns: Spread | None
    part_shares: dict[str, Spread | None]
    shares: dict[str, Share | None]
    phases_ns: dict[Phase, Spread]
    tokens_per_s: float | None
    sent_bytes: float | None
    losses: tuple[float, ...]
    expert_imbalance: Spread | None
    transfer: Transfer | None
    network: NetworkRecord | None
    peak: PeakMemory | None
    profile: ProfileSummary | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def comm_fraction(self) -> Spread | None:
        """Returns exposed communication / iteration time as a spread; None if unknown."""
        return self.part_shares["exposed_comm_ns"]

    @property
    def exposed(self) -> Share | None:
        """Returns the share of an iteration that is exposed communication; None if unknown."""
        return self.shares["exposed_comm_ns"]


def summarise(content: bytes) -> Summary:
    """Returns the summary of a breakdown's JSON.

    Raises:
        pydantic.ValidationError: if the content isn't a breakdown.
    """
    b = decode_breakdown(content)
    groups = samples.by_iteration(b.iterations).values()
    times_ns = samples.iteration_times_ns(groups)
    iteration_ns = Spread.of(times_ns)
    recorded = {phase for iteration in b.iterations for phase in iteration.phases}
    spent = {phase: samples.phase_ns(groups, phase) for phase in Phase if phase in recorded}
    peak = largest_peak(b.peak_memory, b.world_size)
    # The collectives of a command are unknown.
    timed_only = any(i.parts.unknown_ns for i in b.iterations)
    profile = to_model(Profile, b.profile) if b.profile else None
    return Summary(
        title=b.title,
        iteration_times_ns=tuple(times_ns),
        iteration_ns=iteration_ns,
        part_shares={part: samples.part_share(groups, part) for part in PARTS},
        shares={part: shares.share(groups, profile, part) for part in PARTS},
        phases_ns={phase: spread for phase, spread in spent.items() if spread is not None},
        tokens_per_s=samples.tokens_per_s(b.tokens_per_iteration, iteration_ns),
        sent_bytes=None if timed_only else _sent_bytes(b.collectives, len(b.iterations)),
        losses=samples.losses(groups),
        expert_imbalance=samples.expert_imbalance(groups),
        transfer=_transfer(b.collectives),
        network=to_model(NetworkRecord, b.network) if b.network else None,
        peak=to_model(PeakMemory, peak) if peak else None,
        profile=_profile(profile) if profile else None,
        diagnostics=b.diagnostics,
    )


def over_repeats(summaries: Sequence[Summary]) -> Summary:
    """Returns the summary of the repeats of an experiment. Each repeat is one sample, with its median.

    `iteration_times_ns` then holds each repeat's median. The peak of memory is the largest one, the rates of the
    network are those of the repeat with the slowest link, and each diagnostic appears once. What depends on the
    seed alone, and the profiled window, are those of the first repeat.

    Raises:
        ValueError: without a summary.
    """
    first = summaries[0]
    times_ns = [s.iteration_ns.median for s in summaries if s.iteration_ns]
    iteration_ns = Spread.of(times_ns)
    peaks = [s.peak for s in summaries if s.peak]
    networks = [s.network for s in summaries if s.network]
    profiles = [s.profile for s in summaries if s.profile]
    tokens = [
        s.tokens_per_s * s.iteration_ns.median for s in summaries if s.tokens_per_s and s.iteration_ns is not None
    ]
    phases = {phase for s in summaries for phase in s.phases_ns}
    spent = {phase: _medians(s.phases_ns.get(phase) for s in summaries) for phase in Phase if phase in phases}
    return replace(
        first,
        iteration_times_ns=tuple(round(t) for t in times_ns),
        iteration_ns=iteration_ns,
        part_shares={part: _medians(s.part_shares[part] for s in summaries) for part in PARTS},
        shares={part: shares.over_repeats([s.shares[part] for s in summaries]) for part in PARTS},
        phases_ns={phase: spread for phase, spread in spent.items() if spread is not None},
        tokens_per_s=tokens[0] / iteration_ns.median if tokens and iteration_ns else None,
        expert_imbalance=_medians(s.expert_imbalance for s in summaries),
        network=min(networks, key=lambda n: n.measured_rate_bps or 0.0, default=None),
        peak=max(peaks, key=lambda p: p.peak_bytes or 0, default=None),
        profile=profiles[0] if profiles else None,
        diagnostics=tuple(dict.fromkeys(d for s in summaries for d in s.diagnostics)),
    )


def _medians(spreads: Iterable[Spread | None]) -> Spread | None:
    """Returns the spread of the medians of those that are known; None if none is."""
    return Spread.of([spread.median for spread in spreads if spread is not None])


def _sent_bytes(collectives: Sequence[Collective], iterations: int) -> float | None:
    """Returns the bytes that a rank sends in an iteration; None if a collective or its size is unknown."""
    total = 0.0
    for c in collectives:
        if c.bytes is None or c.group_size is None:
            return None
        try:
            total += ring_bytes_sent(c.op, c.bytes, c.group_size)
        except ValueError:  # an operation that only other tools' breakdowns have
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
    hidden, exposed = (profile.part_share(part) for part in ("overlapped_ns", "exposed_comm_ns"))
    return ProfileSummary(
        source=profile.source,
        asked_iterations=profile.asked_iterations,
        overlapped=hidden.median if hidden else None,
        exposed_comm=exposed.median if exposed else None,
        overlap=profile.overlap(),
        reason=profile.reason,
    )
