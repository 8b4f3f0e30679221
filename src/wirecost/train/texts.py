"""Computes how many tokens of text each model family needs for one training sequence."""

from __future__ import annotations

from wirecost.spec import Family, Workload

SENTINELS = 100
MEAN_SPAN = 3


def spans(workload: Workload) -> int:
    """Returns how many spans are cut out of each sequence.

    Each span takes a sentinel and, in the mean, 3 tokens of the targets.
    """
    return min(SENTINELS, max(1, round(workload.decoder_sequence / (MEAN_SPAN + 1))))


def text_length(workload: Workload) -> int:
    """Returns the number of tokens of text for one sequence."""
    if workload.family is Family.GPT:
        return workload.sequence_length + 1  # the last token is only a target
    if workload.family is Family.BERT:
        return workload.sequence_length - 3  # without a start token and two separators
    # Every span adds a sentinel to the inputs and one to the targets.
    return workload.sequence_length + workload.decoder_sequence - 2 * spans(workload)
