"""Finds the number of ranks of a table from its list of devices, its busbw and the user's option."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wirecost.collectives.operations import bus_factor
from wirecost.collectives.readers.base import MAX_RANKS, ResultFileError
from wirecost.collectives.readers.printed import Printed
from wirecost.diagnostics import Diagnostic, diagnostic

FACTOR_SLACK = 0.005
ROUNDING = 1e-6
"""Relative error of busbw over algbw beyond rounding. Benchmarks compute busbw from the unrounded algbw."""
_DEPENDS_ON_N = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
    "gather": 1,
    "scatter": 1,
}
"""busbw / algbw is this number times (n - 1) / n; for all other collectives it is 1 for every n."""


@dataclass
class Devices:
    """The devices that a benchmark lists, and the numbers of ranks and groups that its heading gives."""

    listed: list[tuple[int, int, str, str]] = field(default_factory=list)  # (rank, group, host, GPU)
    heading_ranks: int | None = None
    heading_groups: int | None = None

    @property
    def ranks(self) -> int | None:
        """The number of ranks over all groups: the highest listed rank plus 1; None if none is listed."""
        return max((rank for rank, *_ in self.listed), default=-1) + 1 or None

    @property
    def alone(self) -> bool:
        """Whether only rank 0 is listed, once or several times: the processes did not know of each other."""
        numbers = Counter(rank for rank, *_ in self.listed)
        return bool(numbers) and (set(numbers) == {0})

    @property
    def _complete(self) -> bool:
        """Whether every rank up to the highest is listed."""
        return len({rank for rank, *_ in self.listed}) == self.ranks

    @property
    def hosts(self) -> int | None:
        """The number of machines; None if lines of the list are missing."""
        return len({host for _, _, host, _ in self.listed}) if self._complete else None

    @property
    def span(self) -> int | None:
        """The number of machines of each group; None if it isn't known or the groups differ."""
        hosts_of: dict[int, set[str]] = {}
        for _, group, host, _ in self.listed:
            hosts_of.setdefault(group, set()).add(host)
        spans = {len(hosts) for hosts in hosts_of.values()}
        return spans.pop() if self._complete and len(spans) == 1 else None

    @property
    def gpu(self) -> str | None:
        names = {gpu for *_, gpu in self.listed if gpu}
        return names.pop() if len(names) == 1 else None

    @property
    def groups(self) -> list[int]:
        """The sizes of the groups."""
        return sorted(Counter(group for _, group, *_ in self.listed).values())


@dataclass(frozen=True)
class GroupSize:
    ranks: int
    groups: int = 1
    diagnostic: Diagnostic | None = None


def ratio_ranks(collective: str, pairs: Iterable[tuple[Printed, Printed]]) -> tuple[int, int] | None:
    """Returns the least and most ranks that busbw over algbw of most rows allows; None if nothing limits them."""
    multiple = _DEPENDS_ON_N.get(collective)
    if multiple is None:
        return None
    intervals = []
    for algbw, busbw in pairs:
        if algbw.low <= 0 or algbw.value < 10 * algbw.half:  # too few digits, as in 0.01
            continue
        least = busbw.low / algbw.high / multiple * (1 - ROUNDING)
        most = busbw.high / algbw.low / multiple * (1 + ROUNDING)
        low = 1 / (1 - least) if least < 1 else float(MAX_RANKS)
        high = 1 / (1 - most) if most < 1 else float(MAX_RANKS)
        first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
        if first <= last:
            intervals.append((first, last))
    common = _common(intervals)
    return common if common != (1, MAX_RANKS) else None


def _common(intervals: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Returns the range that the most intervals share; None if half of them or fewer share it."""
    ends = sorted([(first, 0) for first, _ in intervals] + [(last, 1) for _, last in intervals])
    inside = most = 0
    best: tuple[int, int] | None = None
    for k, (at, closes) in enumerate(ends):
        if closes:
            inside -= 1
            continue
        inside += 1
        if inside > most:
            most = inside
            best = at, next(end for end, closing in ends[k:] if closing)
    return best if 2 * most > len(intervals) else None


def group_size(
    collective: str, devices: Devices, allowed: tuple[int, int] | None, ranks: int | None, where: str
) -> GroupSize:
    """Returns the number of ranks in a group, and the number of groups that ran at once.

    Args:
        allowed: the least and largest number of ranks that busbw over algbw allows (see `ratio_ranks`).
        ranks: the number that the user gave.

    Raises:
        ResultFileError: if the sources contradict each other, or none gives the number.
    """
    if devices.alone and not (allowed is not None and allowed[0] > 1):
        processes = len(devices.listed)
        several = f"each of {processes} processes" if processes > 1 else "each process"
        raise ResultFileError(
            f"{where}: {several} ran alone with 1 rank, so nothing was communicated (busbw 0); build nccl-tests "
            "with MPI=1 and start it with the mpirun of the MPI that it was built with"
        )
    if allowed == (1, 1):
        raise ResultFileError(f"{where}: busbw is 0 in every row: each process ran alone with 1 rank")
    listed_ranks = devices.heading_ranks or (None if devices.alone else devices.ranks)
    sizes = devices.groups
    if devices.heading_ranks is None and len(sizes) > 1:
        return _split_groups(sizes, allowed, ranks, where)
    if listed_ranks is not None and _fits(listed_ranks, allowed):
        if ranks is not None and ranks != listed_ranks:
            raise ResultFileError(f"{where}: --ranks {ranks} contradicts the {listed_ranks} ranks that it lists")
        return GroupSize(listed_ranks, devices.heading_groups or 1)
    if ranks is not None:
        if not 1 < ranks <= MAX_RANKS:
            raise ResultFileError(f"{where}: --ranks {ranks}: a collective has 2 to {MAX_RANKS} ranks")
        if not _fits(ranks, allowed):
            raise ResultFileError(_contradiction(where, f"--ranks {ranks} was given", allowed))
        return GroupSize(ranks)
    if listed_ranks is not None:
        raise ResultFileError(_contradiction(where, f"lists {listed_ranks} ranks", allowed))
    if allowed is not None and allowed[0] == allowed[1]:
        return GroupSize(allowed[0])
    raise ResultFileError(f"{where}: the number of ranks is unknown; give it with --ranks N")


def _split_groups(
    sizes: Sequence[int], allowed: tuple[int, int] | None, ranks: int | None, where: str
) -> GroupSize:
    """Returns the size and number of groups that ran at once. Raises ResultFileError for unequal ones."""
    if sizes[0] != sizes[-1]:
        raise ResultFileError(
            f"{where}: groups of {sizes[0]} to {sizes[-1]} ranks ran at once (NCCL_TESTS_SPLIT), and a row does "
            "not tell which group its time belongs to; use groups of one size"
        )
    if not _fits(sizes[0], allowed):
        raise ResultFileError(_contradiction(where, f"lists groups of {sizes[0]} ranks", allowed))
    if ranks is not None and ranks != sizes[0]:
        raise ResultFileError(f"{where}: --ranks {ranks} contradicts the groups of {sizes[0]} ranks that it lists")
    message = f"{len(sizes)} groups of {sizes[0]} ranks ran at once (NCCL_TESTS_SPLIT)"
    return GroupSize(sizes[0], len(sizes), diagnostic("split_groups", message))


def _fits(ranks: int, allowed: tuple[int, int] | None) -> bool:
    return allowed is None or allowed[0] <= ranks <= allowed[1]


def _contradiction(where: str, statement: str, allowed: tuple[int, int] | None) -> str:
    assert allowed is not None
    low, high = allowed
    by = (
        f"{low} ranks" if low == high else f"{low} to {high} ranks" if high < MAX_RANKS else f"{low} ranks or more"
    )
    return (
        f"{where}: {statement}, but busbw over algbw is that of {by}; if groups ran at once (NCCL_TESTS_SPLIT), "
        "give the size of a group with --ranks N; if the file joins several runs, keep the heading of each run"
    )


def factor_agrees(collective: str, ranks: int, algbw: Printed, busbw: Printed) -> bool:
    """Returns whether a row's busbw over algbw is the collective's factor for `ranks` ranks, within rounding."""
    factor = bus_factor(collective, ranks)
    if factor is None:
        return True
    return factor * algbw.low * (1 - FACTOR_SLACK) <= busbw.high and busbw.low <= factor * algbw.high * (
        1 + FACTOR_SLACK
    )
