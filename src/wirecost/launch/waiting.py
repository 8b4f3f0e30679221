"""Finds the rank that the others wait for, from stack dumps that the ranks wrote on request."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMUNICATION = (
    "/torch/distributed/",
    "/torch/autograd/",  # DistributedDataParallel waits for its all-reduces inside the backward call
    "/wirecost/train/channel.py",
    "/wirecost/train/communicator.py",
    "/wirecost/train/pending.py",
    "/wirecost/train/parallel/",
    "/wirecost/collectives/",
    "/mpi4py/",
)
"""Parts of the paths of files that communicate. A rank whose innermost frame is in one of them waits for
others."""


def slowest_rank(done: Sequence[int], dumps: Sequence[str]) -> int | None:
    """Returns the rank that the others wait for, or None if it can't be determined.

    The rank is one of those that completed the fewest steps. If there are several, it is the one that wrote no
    stack dump, as a stopped process can't. Otherwise it is the one that wasn't communicating.

    Args:
        done: number of completed steps of each rank.
        dumps: stack dump of each rank (faulthandler.register), or "" if it wrote none.
    """
    behind = [rank for rank, steps in enumerate(done) if steps == min(done)]
    silent = [rank for rank in behind if not innermost_file(dumps[rank])]
    busy = [rank for rank in behind if not any(part in innermost_file(dumps[rank]) for part in COMMUNICATION)]
    for ranks in (behind, silent, busy):
        if len(ranks) == 1:
            return ranks[0]
    return None


def innermost_file(dump: str) -> str:
    """Returns the file of the innermost Python frame of a stack dump's main thread, or "" without one."""
    # faulthandler writes the thread that got the signal last, after "Current thread 0x... (most recent call
    # first):".
    current = dump.rpartition("Current thread 0x")[2] if "Current thread 0x" in dump else ""
    frame = re.search(r'^  File "([^"\n]+)", line \d+', current, re.MULTILINE)
    return frame[1] if frame else ""
