"""Names the main cause of an iteration's losses by stated rules, with the possible gain and what to try.

Each candidate has a gain: an upper bound of how much shorter an iteration would be without its loss. The candidate
with the largest gain is the cause. If no gain reaches `WORTH` of the iteration, nothing is worth a change. The
rules are listed in docs/how-to/trace.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from wirecost.trace.common_losses import bubble, copies, idle, transfer, unsplit
from wirecost.trace.late_losses import late, turns
from wirecost.trace.loss import Evidence, Loss
from wirecost.trace.matched_traces import MatchedTraces

WORTH = 0.05  # a gain below five percent of the iteration isn't worth anybody's day
_RULES = (late, turns, transfer, bubble, unsplit, idle, copies)  # of equal gains the first counts


def losses(s: MatchedTraces) -> list[Loss]:
    """Returns every candidate, the largest gain first; none if there are no device events."""
    evidence = Evidence(s)
    if not evidence.iteration_ns:
        return []
    candidates = [rule(evidence) for rule in _RULES]
    return sorted((c for c in candidates if c is not None), key=lambda c: -c.gain_ns)


def the_cause(listed: Sequence[Loss]) -> Loss | None:
    """Returns the candidate that is worth a change; None if there is none."""
    return listed[0] if listed and listed[0].gain_share >= WORTH else None


__all__ = ["WORTH", "Loss", "losses", "the_cause"]
