"""In which order a pipeline's rank runs forwards and backwards. Nothing here computes or communicates.

Stage s of the model is chunk s // ranks of rank s % ranks. Over every boundary between two stages, sender and
receiver go through the micro-batches in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wirecost.spec import PipelineSchedule


class Action(NamedTuple):
    """Forward or backward of a micro-batch through one of the rank's chunks."""

    forward: bool
    chunk: int
    micro_batch: int


def gpipe(rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Action]:
    """All forwards, then all backwards (Huang et al. 2018, arXiv:1811.06965)."""
    return [Action(forward, 0, m) for forward in (True, False) for m in range(micro_batches)]


def one_f_one_b(rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Action]:
    """Forwards until the pipeline is full, then one forward and one backward in turn, so that no rank holds more
    than `ranks` micro-batches' activations (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1)."""
    return _alternate(
        [Action(True, 0, m) for m in range(micro_batches)],
        [Action(False, 0, m) for m in range(micro_batches)],
        ahead=ranks - rank - 1,
    )


def interleaved(rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
    """1F1B over several chunks a rank: `ranks` micro-batches go through a chunk, then through the next one
    (Narayanan et al. 2021, section 2.2.2). The bubble shrinks by `chunks`, sends grow by as much."""
    order = [
        (chunk, first + m)
        for first in range(0, micro_batches, ranks)
        for chunk in range(chunks)
        for m in range(ranks)
    ]
    return _alternate(
        [Action(True, chunk, m) for chunk, m in order],
        [Action(False, chunks - 1 - chunk, m) for chunk, m in order],
        ahead=2 * (ranks - rank - 1) + (chunks - 1) * ranks,
    )


def _alternate(forwards: list[Action], backwards: list[Action], ahead: int) -> list[Action]:
    ahead = min(ahead, len(forwards))
    steady = [one for pair in zip(forwards[ahead:], backwards, strict=False) for one in pair]
    return [*forwards[:ahead], *steady, *backwards[len(forwards) - ahead :]]


SCHEDULES: dict[PipelineSchedule, Callable[[int, int, int, int], list[Action]]] = {
    PipelineSchedule.GPIPE: gpipe,
    PipelineSchedule.ONE_F_ONE_B: one_f_one_b,
    PipelineSchedule.INTERLEAVED: interleaved,
}
