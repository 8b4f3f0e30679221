"""Sentences that sum up a comparison of two breakdowns."""

from __future__ import annotations

from collections.abc import Sequence

from wirecost.breakdown import Breakdown, Ratio
from wirecost.comparison.result import PartChange

WORDS = {
    "compute_only_ns": "compute only",
    "overlapped_ns": "overlapped",
    "exposed_comm_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
    "idle_ns": "idle",
}


def summary_lines(
    before: Breakdown,
    after: Breakdown,
    speedup: Ratio | None,
    parts: Sequence[PartChange],
    undivided: list[bool],
    sample: str,
) -> list[str]:
    """Returns sentences on what differs between two breakdowns: their speed-up, and the part that changed most.

    Args:
        undivided: whether each side is a recording without known iterations.
        sample: what the samples of the speed-up are: `iteration` or `repeat`.
    """
    lines = []
    if before.source is not after.source:
        lines.append(f"The first is {before.source.value}, the second {after.source.value}: compare with care.")
    if before.world_size != after.world_size:
        lines.append(f"The worlds differ: {before.world_size} and {after.world_size} ranks.")
    ranks = [len({i.rank for i in side.iterations}) for side in (before, after)]
    if ranks[0] != ranks[1]:
        first = f"{ranks[0]} rank{'s' * (ranks[0] != 1)}"
        lines.append(f"The first holds {first}, the second {ranks[1]}: a straggler may be in one alone.")
    counts = [len(side.by_iteration()) for side in (before, after)]
    if counts[0] != counts[1] and before.collectives and after.collectives:
        lines.append(
            f"Collectives are sums over all that was recorded: {counts[0]} complete "
            f"iteration{'s' * (counts[0] != 1)} in the first and {counts[1]} in the second."
        )
    if any(undivided):
        which = "either side" if all(undivided) else "the first" if undivided[0] else "the second"
        return [
            *lines,
            f"No iterations are known in the recording of {which}: only shares of the time can be compared "
            "(--window name:REGEX names iterations).",
        ]
    if speedup is None:
        return [*lines, "One of the sides has no iteration time, so there is nothing to compare."]
    lines.append(speedup_sentence(speedup, sample))
    known = [(abs(p.change_ns), p.change_ns, p.part) for p in parts if p.change_ns is not None]
    size_ns, change_ns, part = max(known, key=lambda k: k[0], default=(0.0, 0.0, ""))
    if change_ns:
        change = "grew" if change_ns > 0 else "shrank"
        lines.append(
            f"What changed most is {WORDS[part]}: it {change} by {size_ns / 1e6:.3f} ms per iteration and rank."
        )
    if len(known) < len(parts):
        lines.append(
            "Iterations of a command are only timed: shares are from the window under the profiler, where there "
            "was one."
        )
    return lines


def speedup_sentence(speedup: Ratio, sample: str = "iteration") -> str:
    """Returns a sentence on how much faster or slower the second is, with the interval of the number.

    Args:
        sample: what the samples of the speed-up are: `iteration` or `repeat`.
    """
    faster = speedup.value >= 1
    value, low, high = (speedup.value, speedup.low, speedup.high) if faster else _inverse(speedup)
    which = "faster" if faster else "slower"
    samples = f"n = {speedup.n_numerator} and {speedup.n_denominator}"
    least = min(speedup.n_numerator, speedup.n_denominator)
    if least < 3 and sample == "iteration":
        return f"The second is {value:.2f}x {which}, on only {least} iteration{'s' * (least != 1)} of one side."
    samples += " repeats" * (sample == "repeat")
    if speedup.low <= 1 <= speedup.high:
        return (
            f"No difference that these {sample}s show: the second takes {1 / speedup.value:.3f} of the first's "
            f"time (95 % interval {1 / speedup.high:.3f} to {1 / speedup.low:.3f}, {samples})."
        )
    return f"The second is {value:.2f}x {which} (95 % interval {low:.2f}x to {high:.2f}x, {samples})."


def _inverse(ratio: Ratio) -> tuple[float, float, float]:
    return 1 / ratio.value, 1 / ratio.high, 1 / ratio.low
