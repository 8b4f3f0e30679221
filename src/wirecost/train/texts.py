"""How much running text each family makes one training sequence from."""

from __future__ import annotations

from wirecost.spec import Family, Workload

SENTINELS = 100
MEAN_SPAN = 3


def spans(workload: Workload) -> int:
    """Spans cut out of each sequence: each costs a sentinel and 3 tokens (in the mean) of the targets."""
    return min(SENTINELS, max(1, round(workload.decoder_sequence / (MEAN_SPAN + 1))))


def text_length(workload: Workload) -> int:
    """Tokens of text for one sequence."""
    if workload.family is Family.GPT:
        return workload.sequence_length + 1  # the last one is a target only
    if workload.family is Family.BERT:
        return workload.sequence_length - 3  # beside a start token and two separators
    # Every span leaves a sentinel in the inputs and one in the targets.
    return workload.sequence_length + workload.decoder_sequence - 2 * spans(workload)
