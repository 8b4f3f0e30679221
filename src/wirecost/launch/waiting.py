"""Which rank the others wait for, from the stacks that they wrote when asked."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMUNICATION = (
    "/torch/distributed/",
    "/torch/autograd/",  # DistributedDataParallel waits for its all-reduces inside the backward call
    "/wirecost/train/communicator.py",
    "/wirecost/train/parallel/",
    "/wirecost/collectives/",
    "/mpi4py/",
)
"""Files whose code waits for other ranks, when it is the innermost that is known of a rank."""


def slowest_rank(done: Sequence[int], dumps: Sequence[str]) -> int | None:
    """Returns the rank that the others wait for, or None if that can't be told.

    Among the ranks that completed the fewest steps it is the one that didn't answer (a stopped process can't), and
    otherwise the one that was in no communication.

    Args:
        done: how many steps each rank has completed.
        dumps: what each rank wrote when it was asked for its stack (faulthandler.register), "" if nothing.
    """
    least = [rank for rank, steps in enumerate(done) if steps == min(done)]
    silent = [rank for rank in least if not innermost_file(dumps[rank])]
    elsewhere = [rank for rank in least if not any(part in innermost_file(dumps[rank]) for part in COMMUNICATION)]
    for ranks in (least, silent, elsewhere):
        if len(ranks) == 1:
            return ranks[0]
    return None


def innermost_file(dump: str) -> str:
    """Returns the file of the innermost Python frame of the thread that was asked, "" if there is none."""
    # faulthandler writes the asked thread last, as "Current thread 0x... (most recent call first):".
    current = dump.rpartition("Current thread 0x")[2] if "Current thread 0x" in dump else ""
    frame = re.search(r'^  File "([^"\n]+)", line \d+', current, re.MULTILINE)
    return frame[1] if frame else ""
