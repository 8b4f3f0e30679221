"""OSU micro-benchmarks' text (MVAPICH project, OMB 3 to 7): collectives and point to point.

OMB's size is what one rank gives to one other: an all-gather or all-to-all of n ranks moves n times that
in all. The text never tells n.
"""

from __future__ import annotations

import re

from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.readers.base import MAX_RANKS, Reading, ResultFileError, positive, row, whole
from wirecost.collectives.result import Row

TITLE = re.compile(r"# OSU (?:MPI|NCCL|RCCL|OpenSHMEM)\S* ([^\n]+?) Test\b")
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallpersonalizedexchange": "all_to_all",
    "barrier": BARRIER,
    "": "send_recv",
}
PER_PEER = frozenset({"all_gather", "all_to_all"})
PAIR = 2
MEGA = 1e6  # OMB's MB/s


def parse(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Raises ResultFileError."""
    found: list[Row] = []
    ignored = 0
    title: str | None = None
    for line in text.splitlines():
        if match := TITLE.search(line):
            title = match[1]
            continue
        cells = line.split()
        if title is None or not cells or line.lstrip().startswith("#"):
            continue
        numbers = [positive(cell) for cell in cells]
        if numbers[0] is None:
            continue
        read = _row(title, cells, where, ranks)
        if read is None:
            ignored += 1
        else:
            found.append(read)
    if not found:
        raise ResultFileError(f"{where}: OSU's benchmark without any result line")
    return Reading(where, tuple(found), None, ignored)


def _row(title: str, cells: list[str], where: str, ranks: int | None) -> Row | None:
    kind = title.lower()
    if "bandwidth" in kind:
        # A window of messages in one or both directions; both are counted together.
        both = "bi-directional" in kind or "bidirectional" in kind
        size, rate = whole(cells[0]), positive(cells[1]) if len(cells) > 1 else None
        if not size or rate is None or "multiple" in kind:
            return None
        time_us = size * (2 if both else 1) / (rate * MEGA) * 1e6
        name = "send_recv_bidirectional" if both else "send_recv"
        return row(name, size_bytes=size, ranks=PAIR, time_us=time_us)
    letters = re.sub(r"[^a-z]", "", kind.replace("latency", ""))
    if letters not in NAMES:
        raise ResultFileError(f"{where}: no model for OSU's '{title[:60]}'")
    name = NAMES[letters]
    n = PAIR if name == "send_recv" else ranks
    if n is None:
        raise ResultFileError(f"{where}: OSU's output doesn't tell how many ranks took part; say it: --ranks N")
    if not 1 < n <= MAX_RANKS:
        raise ResultFileError(f"{where}: a collective has 2 ranks or more, not {n}")
    if name == BARRIER:
        time_us = positive(cells[0])
        return row(name, size_bytes=0, ranks=n, time_us=time_us) if time_us else None
    size, time_us = whole(cells[0]), positive(cells[1]) if len(cells) > 1 else None
    if not size or time_us is None:
        return None
    total = size * n if name in PER_PEER else size
    entry = COLLECTIVES[name]
    return row(name, size_bytes=total, ranks=n, time_us=time_us, root=0 if entry.rooted else None)
