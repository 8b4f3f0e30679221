"""Reads text of nccl-tests and rccl-tests, of any version, also of several runs in one file.

It reads tables with and without the root column, per-iteration columns, groups (NCCL_TESTS_SPLIT), CPU time (-C),
cycles and several types, and those of version 1.x, whose times are in ms. The formats are defined in
https://github.com/NVIDIA/nccl-tests, src/util.cu (writeResultHeader,
writeBenchmarkLineBody) and before 2.17 src/common.cu; https://github.com/ROCm/rccl-tests, src/common.cu.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from wirecost.collectives.operations import COLLECTIVES, READ_ONLY
from wirecost.collectives.readers.base import Reading, ResultFileError, Table, known_collective, row, tables_of
from wirecost.collectives.readers.group_size import Devices, factor_agrees, group_size, ratio_ranks
from wirecost.collectives.readers.lines import bare_lines
from wirecost.collectives.readers.printed import (
    Cells,
    Columns,
    Line,
    Printed,
    agree,
    columns_of,
    line_of,
    looks_like_row,
    time_of,
)
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.diagnostics import Diagnostic, diagnostic

RANK = re.compile(
    r"^#?\s*Rank\s+(\d{1,8})\s+(?:Group\s+(\d{1,8})\s+)?(?:Pid\s+\d+\s+)?on\s+(\S+)(?:\s+device\s+\d+\s+\[[^\]]*\]\s*(.*))?"
)
PROGRAM = re.compile(r"(\w+)_perf(?:_mpi)?\b")
TESTED = re.compile(r"^#?\s*Collective test (starting|concluded): (\w+)")
OPTIONS = re.compile(r"^#?\s*nThreads?:? \d+ +nGpus:? \d+")
OURS = re.compile(r"^# wirecost \S+ bench: (\w+) over \w+, (?:(\d{1,9}) groups of )?(\d{1,9}) ranks")
BOUNDS = re.compile(r"^#?\s*Out of bounds values\s*:\s*(\S+)\s*(\w*)")
PLACE = re.compile(r"out-of-place|in-place")
PLACES = {"out-of-place": Mode.OUT_OF_PLACE, "in-place": Mode.IN_PLACE}
NEAR = 2
"""The most lines between a heading and the line above it that names the modes."""
ITEM_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "half": 2, "bfloat16": 2, "float": 4, "int32": 4, "uint32": 4, "int": 4,
    "double": 8, "int64": 8, "uint64": 8,
}  # fmt: skip
MILLISECONDS = 1e3  # us
LEAST_ALGBW = 0.5
"""In GB/s. Below it, a time computed from an algbw with two decimals is off by more than 1 %."""


@dataclass
class _Run:
    """One run of one program."""

    collective: str | None = None
    devices: Devices = field(default_factory=Devices)
    columns: Columns | None = None
    has_options: bool = False
    lines: list[Line] = field(default_factory=list)
    torn: int = 0
    failed: str | None = None  # a message if the footer reports wrong results

    @property
    def begun(self) -> bool:
        return bool(self.has_options or self.columns or self.lines or self.devices.listed)


def parse(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Reads text. Raises ResultFileError if no table in it can be used."""
    tables: list[Table] = []
    diagnostics: list[Diagnostic] = []
    corrupt: list[str] = []
    refusals: list[ResultFileError] = []
    ignored = 0
    for run in _runs(bare_lines(text)):
        ignored += run.torn
        if run.failed is not None:
            corrupt.append(run.failed)
        if not run.lines:
            continue
        try:
            result = _read(run, where, ranks)
        except ResultFileError as refusal:
            refusals.append(refusal)
            continue
        tables += result.tables
        diagnostics += result.diagnostics
        corrupt += result.corrupt
        ignored += result.ignored
    if not tables:
        if refusals:
            raise refusals[0]
        raise ResultFileError(
            f"{where}: no result line of nccl-tests (size, count, type, ..., time, algbw, busbw)"
            + (f"; {ignored} table rows are interrupted by other output" if ignored else "")
        )
    left_out = [f"a table was left out: {str(r).removeprefix(f'{where}: ')}" for r in refusals]
    diagnostics += [diagnostic("table_left_out", message) for message in left_out]
    distinct = tuple(dict.fromkeys(diagnostics)), tuple(dict.fromkeys(corrupt))
    return Reading(where, tuple(tables), ignored, *distinct)


def _runs(lines: list[str]) -> Iterator[_Run]:
    """Yields the runs in a file in order."""
    split = _Split()
    for number, line in enumerate(lines):
        yield from split.take(number, line)
    yield split.run


class _Split:
    """Splits the lines of a file into runs.

    Attributes:
        run: the run that the next lines belong to.
    """

    def __init__(self) -> None:
        self.run = _Run()
        self._announced: str | None = None  # the program in the latest command line, for the run after it
        self._places: list[Mode] = []
        self._places_at = -NEAR

    def take(self, number: int, line: str) -> Iterator[_Run]:
        """Takes the next line; yields the run before it if another one begins."""
        text = line.strip().replace("# wrong", "#wrong")
        if match := OURS.match(text):
            yield from self._ended(self.run.begun)
            self.run.collective, self.run.has_options = known_collective(match[1]), True
            self.run.devices.heading_ranks, self.run.devices.heading_groups = int(match[3]), int(match[2] or 1)
        elif match := TESTED.match(text):
            yield from self._tested(match)
        elif OPTIONS.match(text):
            run = self.run
            again = run.has_options and run.devices.listed and not _interleaved(run)
            yield from self._ended(bool(run.lines or again))
            self.run.collective, self.run.has_options = self.run.collective or self._announced, True
        elif match := RANK.match(text):
            yield from self._ended(bool(self.run.lines), self._announced)
            gpu = (match[4] or "").strip()[:60]
            self.run.devices.listed.append((int(match[1]), int(match[2] or 0), match[3], gpu))
        elif match := BOUNDS.match(text):
            if match[2] == "FAILED":
                self.run.failed = f"the benchmark reports out of bounds values: {match[1][:20]} FAILED"
        elif columns := self._columns(number, text):
            yield from self._ended(bool(self.run.lines), self._announced)
            self.run.columns = columns
            self.run.collective = self.run.collective or self._announced
        else:
            self._content(number, line, text)

    def _ended(self, over: bool, collective: str | None = None) -> Iterator[_Run]:
        """Yields the run if it is over, and begins the next one."""
        if over:
            yield self.run
            self.run = _Run(collective)

    def _tested(self, match: re.Match[str]) -> Iterator[_Run]:
        """Takes a line that marks the start or end of a collective's test."""
        if match[1] == "concluded":
            self.run.collective = self.run.collective or known_collective(match[2])
            self._announced = None
            yield from self._ended(True)
            return
        yield from self._ended(self.run.begun)
        self.run.collective = known_collective(match[2])

    def _columns(self, number: int, text: str) -> Columns | None:
        """Returns the columns that a heading names; None where the line is no heading."""
        places = self._places if number - self._places_at <= NEAR else []
        return columns_of(text.lstrip("#| ").replace("|", " ").split(), places) or None

    def _content(self, number: int, line: str, text: str) -> None:
        """Takes a line that begins no run: the modes' names above a heading, a row, a command line."""
        run = self.run
        if PLACE.search(text) and not looks_like_row(text):
            self._places = [PLACES[name] for name in PLACE.findall(text)][: len(Mode)]
            self._places_at = number
        elif run.columns is not None and not text.startswith("#") and looks_like_row(line):
            parsed = line_of(line, run.columns)
            if parsed is None:
                run.torn += 1
            else:
                run.lines.append(parsed)
        elif (match := PROGRAM.search(text)) and (name := known_collective(match[1])):
            self._announced = name
            if run.collective is None and not run.lines:
                run.collective = name


def _interleaved(run: _Run) -> bool:
    """Returns whether a second heading comes from another process of the same run, each of which ran alone."""
    return run.devices.alone and run.columns is None


def _read(run: _Run, where: str, ranks: int | None) -> Reading:
    """Returns the tables of one run. Raises ResultFileError if none can be used."""
    assert run.columns is not None
    every = [(line, cells) for line in run.lines for cells in line.cells if line.size_bytes]
    collective = run.collective or _guess(run.lines)
    if collective is None:
        raise ResultFileError(
            f"{where}: the collective is unknown; keep nccl-tests' '# Collective test' lines or the command line "
            "in the file"
        )
    _check_root(collective, run.lines, where)
    diagnostics: list[Diagnostic] = []
    unit_us = _unit(every, run.columns, where, diagnostics)
    pairs = [(c.algbw, c.busbw) for _, c in every if c.algbw is not None and c.busbw is not None]
    size = group_size(collective, run.devices, ratio_ranks(collective, pairs), ranks, where)
    diagnostics += [size.diagnostic] if size.diagnostic else []
    fits = [_factor_agrees(collective, size.ranks, cells) for _, cells in every]
    none_fits = not any(fits)
    rows: list[Row] = []
    at_odds = 0
    for (line, cells), factor_fits in zip(every, fits, strict=True):
        time_us = _time_us(line, cells, unit_us) if factor_fits or none_fits else None
        if time_us is None:
            at_odds += cells.time is not None
            continue
        rows.append(_row(collective, size.ranks, line, cells, time_us))
    if not rows:
        raise ResultFileError(f"{where}: size, time and algbw agree in no row; in {at_odds} rows they disagree")
    if none_fits:
        message = (
            f"{collective}: busbw is not algbw times the factor of {size.ranks} ranks; bandwidths shown here are "
            "computed from size and time"
        )
        diagnostics.append(diagnostic("bandwidth_recomputed", message))
    wrong = [r for r in rows if r.wrong]
    corrupt = [_wrong(wrong, len(rows))] if wrong else []
    tables = tables_of(
        rows, hosts=run.devices.hosts, groups=size.groups, gpu=run.devices.gpu, span=run.devices.span
    )
    return Reading(where, tuple(tables), at_odds, tuple(diagnostics), tuple(corrupt))


def _check_root(collective: str, lines: list[Line], where: str) -> None:
    """Raises ResultFileError if rows have a root and the collective has none, or vice versa."""
    roots = {line.root for line in lines if line.root is not None}
    if roots and all(root < 0 for root in roots) == _rooted(collective):
        shown = ", ".join(map(str, sorted(roots)[:3]))
        has = "has a root" if _rooted(collective) else "has none"
        raise ResultFileError(f"{where}: the rows' root is {shown}, but {collective} {has}")


def _rooted(collective: str) -> bool:
    entry = COLLECTIVES.get(collective)
    return collective in READ_ONLY or (entry is not None and entry.rooted)


def _guess(lines: list[Line]) -> str | None:
    """Returns the only collective that matches operation, root and element count; None if there are several."""
    first = max(lines, key=lambda line: line.size_bytes)
    reduces = first.redop in {"sum", "prod", "max", "min", "avg"}
    item_bytes = ITEM_BYTES.get(first.dtype)
    shows_all = item_bytes is None or first.count * item_bytes == first.size_bytes
    if first.root is not None and first.root >= 0:
        return ("reduce" if reduces else "broadcast") if shows_all else None
    return ("all_reduce" if shows_all else "reduce_scatter") if reduces else None


def _unit(
    every: list[tuple[Line, Cells]], columns: Columns, where: str, diagnostics: list[Diagnostic]
) -> float | None:
    """Returns the unit of the times, in us; None if they are launch times, so that algbw must be used instead.

    Raises:
        ResultFileError: if most times and bandwidths disagree in every known unit.
    """
    checked = [(line, c.time, c.algbw) for line, c in every if c.time is not None and c.algbw is not None]
    if columns.cpu_time:
        message = "the time column holds the CPU's launch times (-C); times shown here are size over algbw"
        diagnostics.append(diagnostic("cpu_times", message))
        return None

    def share(unit_us: float) -> float:
        return sum(agree(line.size_bytes, t, a, unit_us) for line, t, a in checked) / len(checked)

    if not checked or share(1.0) > 0.5:
        return 1.0
    if share(MILLISECONDS) > 0.5:
        diagnostics.append(diagnostic("times_in_ms", "times are in ms (nccl-tests 1.x)"))
        return MILLISECONDS
    line, time, algbw = checked[-1]
    raise ResultFileError(
        f"{where}: time and algbw disagree: {line.size_bytes} B in {time.value:g} us are "
        f"{line.size_bytes / (time.value or 1) * 1e-3:.3g} GB/s, not {algbw.value:g}; if the times are the CPU's "
        "(-C), keep the table's heading"
    )


def _time_us(line: Line, cells: Cells, unit_us: float | None) -> float | None:
    """Returns a row's time in us; None if the row has none or its values contradict each other."""
    if cells.time is None or cells.time.value <= 0:
        return None
    item_bytes = ITEM_BYTES.get(line.dtype)
    if item_bytes is not None and line.count and line.size_bytes % (line.count * item_bytes):
        return None
    if unit_us is None:
        fine = cells.algbw is not None and cells.algbw.value >= LEAST_ALGBW
        return line.size_bytes / (cells.algbw.value * 1e3) if fine and cells.algbw is not None else None
    if cells.algbw is not None and not agree(line.size_bytes, cells.time, cells.algbw, unit_us):
        return None
    return time_of(line.size_bytes, cells.time, cells.algbw, unit_us)


def _factor_agrees(collective: str, ranks: int, cells: Cells) -> bool:
    return cells.algbw is None or cells.busbw is None or factor_agrees(collective, ranks, cells.algbw, cells.busbw)


def _row(collective: str, ranks: int, line: Line, cells: Cells, time_us: float) -> Row:
    entry = COLLECTIVES.get(collective)
    reduces = entry is not None and entry.reduces
    p99: Printed | None = cells.p99
    return row(
        collective,
        size_bytes=line.size_bytes,
        count=line.count,
        dtype=line.dtype,
        redop=line.redop[:10] if reduces and line.redop else None,
        root=max(line.root or 0, 0) if _rooted(collective) else None,
        ranks=ranks,
        time_us=time_us,
        mode=cells.mode,
        wrong=cells.wrong,
        percentiles_us=(None, None, p99.value if p99 is not None and p99.value > 0 else None),
    )


def _wrong(wrong: list[Row], rows: int) -> str:
    worst = max(wrong, key=lambda r: r.wrong or 0)
    return (
        f"{worst.collective} of {worst.size_bytes} B ({worst.mode.replace('_', ' ')}): {worst.wrong} elements "
        f"are wrong; {len(wrong)} of {rows} results are wrong"
    )
