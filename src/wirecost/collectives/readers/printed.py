"""Parses rows as nccl-tests prints them. Each number keeps its rounding error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirecost.collectives.readers.base import count_of, number, whole
from wirecost.collectives.request import Mode

SLACK = 0.01
"""Relative difference allowed beyond rounding between a row's time and bandwidth, which are one measurement."""
LEAD = 3
"""Number of columns (size, count, type) with which rows of every version begin."""
GROUP_STARTS = frozenset({"time", "cputime"})
_TYPE = re.compile(
    r"(?:u?int(?:8|16|32|64)?|u?char|half|b?float(?:8|16|32|64)?\w{0,8}|bf16|fp\w{1,10}|f8\w{1,8}|double)$"
)
_GLUED = re.compile(r"(?:.*[^\w.+-])?(\d{1,18})$")
_CLOCK = re.compile(r"\d{2}:\d{2}:\d{2}")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number and half a unit of its last printed digit."""

    value: float
    half: float

    @property
    def relative(self) -> float:
        return self.half / self.value if self.value else math.inf

    @property
    def low(self) -> float:
        return max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        return self.value + self.half


def printed(text: str) -> Printed | None:
    """Returns a non-negative number with its rounding error; None for anything else."""
    value = number(text)
    if value is None or value < 0:
        return None
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return Printed(value, 0.5 * 10.0 ** (int(exponent or 0) - decimals))


@dataclass(frozen=True)
class Columns:
    """The columns that a table's heading names.

    Attributes:
        before_time: the names between type and the first time.
        groups: the names of each mode's columns, from its time on.
        modes: the mode of each group.
        cpu_time: whether the time is the CPU's launch time (nccl-tests' -C).
        counts_wrong: whether a mode's fourth column counts wrong elements. Before version 2.13 it is the largest
            difference.
    """

    before_time: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    modes: tuple[Mode, ...]
    cpu_time: bool
    counts_wrong: bool


def columns_of(names: Sequence[str], places: Sequence[Mode]) -> Columns | None:
    """Returns the columns of a heading ("size count type redop root time algbw busbw #wrong ...").

    `places` are the modes that the line above the heading names, in order. Returns None for other lines.
    """
    if "busbw" not in names or not ({"size", "bytes"} & set(names)):
        return None
    starts = [i for i, name in enumerate(names) if name in GROUP_STARTS]
    if not starts or len(starts) > len(Mode) or starts[0] < LEAD:
        return None
    ends = [*starts[1:], len(names) - ("timestamp" in names)]
    groups = tuple(tuple(names[a:b]) for a, b in zip(starts, ends, strict=True))
    if any(group[1:3] != ("algbw", "busbw") for group in groups):
        return None
    modes = tuple(places) if len(places) == len(groups) else (Mode.OUT_OF_PLACE, Mode.IN_PLACE)[: len(groups)]
    fourth = groups[0][3] if len(groups[0]) > 3 else ""
    return Columns(
        before_time=tuple(names[LEAD : starts[0]]),
        groups=groups,
        modes=modes,
        cpu_time=names[starts[0]] == "cputime",
        counts_wrong=fourth.lstrip("#") == "wrong",
    )


@dataclass(frozen=True)
class Cells:
    """One mode's cells of a row. `wrong` is None if the check was off or does not count elements."""

    mode: Mode
    time: Printed | None
    algbw: Printed | None
    busbw: Printed | None
    wrong: int | None
    p99: Printed | None


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    size_bytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    cells: tuple[Cells, ...]


def looks_like_row(line: str) -> bool:
    """Returns whether a line begins like a row, complete or not."""
    return _start(_words(line)) is not None


def line_of(line: str, columns: Columns) -> Line | None:
    """Returns the row in a line; None if the line holds no row or an incomplete one."""
    words = _words(line)
    start = _start(words)
    if start is None or "NCCL INFO" in line or "NCCL WARN" in line:
        return None
    at, size, count = start
    rest = words[at + 1 :]
    total = sum(map(len, columns.groups))
    groups, modes = columns.groups, columns.modes
    end = len(rest) - (2 if rest and _CLOCK.fullmatch(rest[-1]) else 0)
    if end < total and len(groups) > 1:  # a replay prints in-place results only
        groups, modes, total = groups[-1:], modes[-1:], len(groups[-1])
    # Some versions leave cells before the time empty, and wrappers may append words: try each possible position.
    for first in dict.fromkeys((end - total, *range(len(columns.before_time), -1, -1))):
        if 0 <= first <= len(columns.before_time) and first + total <= end:
            cells = _cells(rest[first : first + total], groups, modes, columns)
            if cells is not None:
                before_time = rest[:first]
                redop = before_time[0] if before_time and before_time[0].isalpha() else None
                root = number(before_time[-1]) if before_time and not before_time[-1].isalpha() else None
                return Line(size, count, words[at][:20], redop, None if root is None else int(root), cells)
    return None


def _words(line: str) -> list[str]:
    """Returns the cells of a line, whose separators are spaces, bars or commas."""
    words = line.replace("|", " ").split()
    return words if len(words) > LEAD or line.count(",") < LEAD else line.replace(",", " ").split()


def _start(words: Sequence[str]) -> tuple[int, int, int] | None:
    """Returns (index of the type, size, count) at any position in the line; None if the line has none.

    Launchers may put words before the row.
    """
    for at in range(2, min(len(words), 16)):
        if _TYPE.match(words[at]) is not None and (count := whole(words[at - 1])) is not None:
            glued = _GLUED.match(words[at - 2])
            size = whole(glued[1]) if glued is not None else None
            if size is not None:
                return at, size, count
    return None


def _cells(
    words: Sequence[str], groups: Iterable[Sequence[str]], modes: Sequence[Mode], columns: Columns
) -> tuple[Cells, ...] | None:
    cells = []
    at = 0
    for names, mode in zip(groups, modes, strict=True):
        mine = words[at : at + len(names)]
        at += len(names)
        missing = [word.upper() in ("N/A", "NAN", "-NAN") for word in mine]
        time, algbw, busbw = (printed(word) for word in mine[:3])
        if any(p is None and not absent for p, absent in zip((time, algbw, busbw), missing, strict=False)):
            return None
        wrong = None
        if len(mine) > 3 and not missing[3]:
            wrong = count_of(mine[3])
            if wrong is None and number(mine[3].strip("*")) is None:
                return None
        p99 = printed(mine[names.index("i_p99")]) if "i_p99" in names else None
        cells.append(Cells(mode, time, algbw, busbw, wrong if columns.counts_wrong else None, p99))
    return tuple(cells)


def agree(size_bytes: int, time_us: Printed, algbw: Printed, unit_us: float = 1.0) -> bool:
    """Returns whether size over time is the algbw (in GB/s) of the same row, within rounding."""
    if time_us.low <= 0:
        return time_us.value > 0 and algbw.high * (1 + SLACK) >= size_bytes / (time_us.high * unit_us * 1e3)
    low = size_bytes / (time_us.high * unit_us * 1e3)
    high = size_bytes / (time_us.low * unit_us * 1e3)
    return low * (1 - SLACK) <= algbw.high and algbw.low <= high * (1 + SLACK)


def time_of(size_bytes: int, time_us: Printed, algbw: Printed | None, unit_us: float = 1.0) -> float:
    """Returns the time in us, from time or algbw, whichever was printed with more digits."""
    if algbw is not None and algbw.value > 0 and algbw.relative < time_us.relative:
        return size_bytes / (algbw.value * 1e3)
    return time_us.value * unit_us
