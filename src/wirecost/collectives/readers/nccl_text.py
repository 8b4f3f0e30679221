"""nccl-tests' text, of any version: with and without the root column, per-iteration columns, launcher prefixes.

https://github.com/NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLineBody).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wirecost.collectives.operations import COLLECTIVES, collective_name
from wirecost.collectives.readers.base import MAX_RANKS, Reading, ResultFileError, positive, row, whole
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.errors import SpecError

PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\s{0,4}\d{1,6}:(?=\s))\s?")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
RANK = re.compile(r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)")
PROGRAM = re.compile(r"(\w+)_perf(?:_mpi)?\b")
TESTED = re.compile(r"^# Collective test (?:starting|concluded): (\w+)")
OURS = re.compile(r"^# wirecost \S+ bench: (\w+) over \w+, (?:(\d+) groups of )?(\d+) ranks")
GROUP_STARTS = frozenset({"time", "cputime"})
KINDS = {1: (Mode.OUT_OF_PLACE,), 2: (Mode.OUT_OF_PLACE, Mode.IN_PLACE)}
LEAD = 3
"""Every version begins a line with size, count and type."""


@dataclass
class _State:
    collective: str | None = None
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    told_ranks: int | None = None
    widths: list[int] = field(default_factory=list)
    """Columns of each group (time, algbw, busbw, #wrong, and in some versions more)."""
    percentile_at: int | None = None
    waiting: list[tuple[list[str], str | None]] = field(default_factory=list)


def parse(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Raises ResultFileError."""
    state, found, ignored = _State(), list[Row](), 0
    for raw in text.splitlines():
        line = PREFIX.sub("", ANSI.sub("", raw)).rstrip()
        if line.lstrip().startswith("#"):
            _comment(state, line.lstrip())
            if TESTED.match(line.lstrip()) and "concluded" in line:
                found += _rows(state, where, ranks)
            continue
        cells = line.split()
        if not cells or not state.widths:
            if (match := PROGRAM.search(line)) and (name := _name(match[1])):
                state.collective = state.collective or name
            continue
        if whole(cells[0]) is None or len(cells) < LEAD + min(state.widths):
            ignored += bool(cells and cells[0].isdigit())
            continue
        state.waiting.append((cells, state.collective))
    found += _rows(state, where, ranks)
    if not found:
        raise ResultFileError(
            f"{where}: no result line of nccl-tests in it (size, count, type, ..., time, algbw, busbw)"
        )
    return Reading(where, tuple(found), len(state.hosts) or None, ignored)


def _name(text: str) -> str | None:
    try:
        return collective_name(text)
    except SpecError:
        return None


def _comment(state: _State, line: str) -> None:
    if match := OURS.match(line):
        state.collective, state.told_ranks = _name(match[1]), int(match[3])
    elif match := TESTED.match(line):
        state.collective = state.collective or _name(match[1])
    elif match := RANK.match(line):
        state.ranks.add(int(match[1]))
        state.hosts.add(match[2])
    else:
        names = line.lstrip("# ").split()
        if "size" in names and "busbw" in names:
            starts = [i for i, name in enumerate(names) if name in GROUP_STARTS]
            ends = [*starts[1:], len(names) - ("timestamp" in names)]
            if starts and len(starts) <= max(KINDS):
                state.widths = [end - start for start, end in zip(starts, ends, strict=True)]
                per_iteration = names[starts[0] : ends[0]]
                state.percentile_at = per_iteration.index("i_p99") if "i_p99" in per_iteration else None


def _rows(state: _State, where: str, ranks: int | None) -> list[Row]:
    """The lines of one table, whose collective may be told only below it."""
    found = []
    lines, state.waiting = state.waiting, []
    for cells, named in lines:
        collective = named or state.collective or _guess(cells)
        if collective not in COLLECTIVES:
            raise ResultFileError(
                f"{where}: can't tell which collective this is; keep nccl-tests' '# Collective test' lines or the "
                "command line in it"
            )
        n = ranks or state.told_ranks or len(state.ranks) or _ranks_from(cells, state, collective)
        if n is None or not 1 < n <= MAX_RANKS:
            raise ResultFileError(f"{where}: can't tell how many ranks took part; say it: --ranks N")
        found += _line(cells, state, collective, n)
    state.collective = None
    return found


def _guess(cells: list[str]) -> str | None:
    """Only one collective reduces and has no root; the rest can't be told apart."""
    return "all_reduce" if len(cells) > LEAD + 1 and cells[LEAD] in {"sum", "prod", "max", "min", "avg"} else None


def _groups(cells: list[str], state: _State) -> list[tuple[Mode, list[str]]]:
    """The cells of each mode, read from the right: some versions leave cells on the left empty."""
    total = sum(state.widths)
    if len(cells) >= LEAD + total:
        modes, widths = KINDS[len(state.widths)], state.widths
    else:
        # A replay prints only in place.
        modes, widths = (Mode.IN_PLACE,), state.widths[-1:]
    # A timestamp is two words at the end.
    end = len(cells) - (2 if re.fullmatch(r"\d{2}:\d{2}:\d{2}", cells[-1]) else 0)
    groups = []
    for mode, width in zip(reversed(modes), reversed(widths), strict=True):
        groups.append((mode, cells[end - width : end]))
        end -= width
    return groups[::-1]


def _ranks_from(cells: list[str], state: _State, collective: str) -> int | None:
    """From busbw / algbw = 2(n-1)/n, where three digits of both make n certain."""
    if collective != "all_reduce":
        return None
    for _, group in _groups(cells, state):
        algbw, busbw = positive(group[1]), positive(group[2])
        if algbw and busbw and min(algbw, busbw) >= 1 and busbw / algbw < 1.999:
            n = 2 / (2 - busbw / algbw)
            low, high = (
                2 / (2 - (busbw - 0.005) / (algbw + 0.005)),
                2 / (2 - min(1.999, (busbw + 0.005) / (algbw - 0.005))),
            )
            if round(low) == round(high) and n > 1:
                return round(n)
    return None


def _line(cells: list[str], state: _State, collective: str, ranks: int) -> list[Row]:
    size, count = whole(cells[0]), whole(cells[1])
    if not size or count is None:
        return []
    entry = COLLECTIVES[collective]
    found = []
    for mode, group in _groups(cells, state):
        time_us = positive(group[0])
        if time_us is None:
            continue
        p99 = positive(group[state.percentile_at]) if state.percentile_at is not None else None
        found.append(
            row(
                collective,
                size_bytes=size,
                count=count,
                dtype=cells[2][:20],
                redop=cells[LEAD][:10] if entry.reduces and not cells[LEAD][0].isdigit() else None,
                root=0 if entry.rooted else None,
                ranks=ranks,
                time_us=time_us,
                mode=mode,
                wrong=_wrong(group[3]) if len(group) > LEAD else None,
                percentiles_us=(None, None, p99),
            )
        )
    return found


def _wrong(text: str) -> int | None:
    """Versions before 2.13 print the largest difference here, as 0e+00 or 5e-07: no count."""
    return whole(text)
