"""OSU micro-benchmarks' text (MVAPICH project, OMB 3 to 7): collectives and point to point.

OMB's size is the message from one rank to another, so the total size of an all-gather or all-to-all of n ranks is
n times that. The text never gives n. The time of a non-blocking collective is that of its pure communication.
"""

from __future__ import annotations

import re

from wirecost.collectives.operations import BARRIER, COLLECTIVES, READ_ONLY
from wirecost.collectives.readers.base import (
    MAX_RANKS,
    Reading,
    ResultFileError,
    Table,
    positive,
    row,
    tables_of,
    whole,
)
from wirecost.collectives.readers.lines import bare_lines
from wirecost.collectives.result import Row

TITLE = re.compile(r"# OSU (?:MPI|NCCL|RCCL|OpenSHMEM)\S* ([^\n]+?) Test\b")
COLUMN = re.compile(r"Size|Iterations|Validation|Valid|[A-Za-z0-9_.]+(?: [A-Za-z0-9_.]+)*? ?\([^)]{1,12}\)")
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallpersonalizedexchange": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": BARRIER,
    "": "send_recv",
}
PER_PEER = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
PAIR = 2
MEGA = 1e6  # OMB's MB/s


class _Columns:
    """Finds a table's columns by the names in its heading."""

    def __init__(self, names: list[str]) -> None:
        self._names = [name.lower() for name in names]

    def at(self, *words: str) -> int | None:
        """Returns the first column whose name contains one of the words; earlier words take precedence."""
        for word in words:
            for k, name in enumerate(self._names):
                if word in name:
                    return k
        return None


def parse(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Reads OSU's text. Raises ResultFileError if it has no result, or its benchmark is not supported."""
    tables: list[Table] = []
    rows: list[Row] = []
    ignored = failed = 0
    title: str | None = None
    columns = _Columns([])
    for line in bare_lines(text):
        if match := TITLE.search(line):
            tables += tables_of(rows)
            rows, title, columns = [], match[1], _Columns([])
            continue
        cells = line.split()
        if title is None or not cells:
            continue
        if line.lstrip().startswith("#"):
            if re.match(r"#\s*(?:Size|(?:Avg |Overall )?Latency|Overall|Avg)", line.lstrip()):
                columns = _Columns(COLUMN.findall(line.lstrip("# ")))
            continue
        if positive(cells[0]) is None and cells[0] != "0":
            continue
        read = _row(title, cells, columns, where, ranks)
        if read is None:
            ignored += cells[0] != "0"
        else:
            rows.append(read)
            failed += (read.wrong or 0) > 0
    tables += tables_of(rows)
    if not tables:
        raise ResultFileError(f"{where}: output of an OSU benchmark without any result line")
    corrupt = [f"the benchmark reports that {failed} results failed the validation"] if failed else []
    return Reading(where, tuple(tables), ignored, (), tuple(corrupt))


def _row(title: str, cells: list[str], columns: _Columns, where: str, ranks: int | None) -> Row | None:
    kind = title.lower()
    if "bandwidth" in kind:
        return _bandwidth(kind, title, cells, where)
    non_blocking = "non-blocking" in kind or re.match(r"i[a-z]+ latency", kind) is not None
    letters = re.sub(r"[^a-z]", "", kind.replace("latency", "").replace("non-blocking", ""))
    if letters not in NAMES and letters[:1] == "i" and letters[1:] in NAMES:
        letters, non_blocking = letters[1:], True
    if letters not in NAMES:
        raise ResultFileError(f"{where}: OSU's '{title[:60]}' is not supported")
    name = NAMES[letters]
    n = PAIR if name == "send_recv" else ranks
    if n is None:
        raise ResultFileError(f"{where}: OSU's output doesn't give the number of ranks; give it with --ranks N")
    if not 1 < n <= MAX_RANKS:
        raise ResultFileError(f"{where}: --ranks {n}: a collective has 2 to {MAX_RANKS} ranks")
    time_at = columns.at("pure comm") if non_blocking else columns.at("avg latency", "latency")
    if non_blocking and time_at is None:
        raise ResultFileError(f"{where}: OSU's '{title[:60]}' lacks its column 'Pure Comm.(us)'")
    if name == BARRIER:
        time_us = positive(cells[time_at or 0]) if (time_at or 0) < len(cells) else None
        return row(name, size_bytes=0, ranks=n, time_us=time_us) if time_us else None
    size, time_us = whole(cells[0]), _at(cells, 1 if time_at is None else time_at)
    if not size or time_us is None:
        return None
    total = size * n if name in PER_PEER else size
    entry = COLLECTIVES.get(name)
    percentiles = tuple(_at(cells, columns.at(p)) for p in ("p50", "p95", "p99"))
    checked = columns.at("valid")
    verdict = cells[checked].lower() if checked is not None and checked < len(cells) else ""
    return row(
        name,
        size_bytes=total,
        ranks=n,
        time_us=time_us,
        root=0 if name in READ_ONLY or (entry is not None and entry.rooted) else None,
        wrong={"pass": 0, "fail": 1}.get(verdict),
        percentiles_us=(percentiles[0], percentiles[1], percentiles[2]),
    )


def _at(cells: list[str], column: int | None) -> float | None:
    return positive(cells[column]) if column is not None and column < len(cells) else None


def _bandwidth(kind: str, title: str, cells: list[str], where: str) -> Row | None:
    """Returns the row of a bandwidth test. Its rate is the sum of both directions where it tests both."""
    if "multiple" in kind or "one sided" in kind or "one-sided" in kind:
        raise ResultFileError(f"{where}: OSU's '{title[:60]}' is not supported")
    both = "bi-directional" in kind or "bidirectional" in kind
    size, rate = whole(cells[0]), _at(cells, 1)
    if not size or rate is None:
        return None
    time_us = size * (2 if both else 1) / (rate * MEGA) * 1e6
    name = "send_recv_bidirectional" if both else "send_recv"
    return row(name, size_bytes=size, ranks=PAIR, time_us=time_us)
