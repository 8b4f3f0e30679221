"""Pipeline schedules: the order in which a rank runs forwards and backwards.

Stage s of the model is chunk s // ranks of rank s % ranks. At every boundary between two stages, the sender and
the receiver process the micro-batches in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wirecost.spec import PipelineSchedule


class Action(NamedTuple):
    """Forward or backward of one micro-batch through one of the rank's chunks."""

    forward: bool
    chunk: int
    micro_batch: int


def gpipe(rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Action]:
    """Returns the GPipe schedule: all forwards, then all backwards (Huang et al. 2018, arXiv:1811.06965)."""
    return [Action(forward, 0, m) for forward in (True, False) for m in range(micro_batches)]


def one_f_one_b(rank: int, ranks: int, micro_batches: int, chunks: int = 1) -> list[Action]:
    """Returns the 1F1B schedule (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1).

    Forwards fill the pipeline, and then forwards and backwards alternate. No rank holds the activations of more
    than `ranks` micro-batches.
    """
    return _alternate(
        [Action(True, 0, m) for m in range(micro_batches)],
        [Action(False, 0, m) for m in range(micro_batches)],
        ahead=ranks - rank - 1,
    )


def interleaved(rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
    """Returns the interleaved 1F1B schedule (Narayanan et al. 2021, section 2.2.2).

    Each rank has several chunks. `ranks` micro-batches pass through one chunk, and then through the next one.
    The bubble is divided by `chunks`, and the number of sends is multiplied by it.
    """
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
    """Returns `ahead` forwards, then a forward and a backward alternately, then the remaining backwards."""
    ahead = min(ahead, len(forwards))
    steady = [action for pair in zip(forwards[ahead:], backwards, strict=False) for action in pair]
    return [*forwards[:ahead], *steady, *backwards[len(forwards) - ahead :]]


SCHEDULES: dict[PipelineSchedule, Callable[[int, int, int, int], list[Action]]] = {
    PipelineSchedule.GPIPE: gpipe,
    PipelineSchedule.ONE_F_ONE_B: one_f_one_b,
    PipelineSchedule.INTERLEAVED: interleaved,
}
