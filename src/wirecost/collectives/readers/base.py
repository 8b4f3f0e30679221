"""The result types of all readers, and the checks of numbers that come from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from wirecost.collectives.operations import BARRIER, COLLECTIVES, READ_ONLY, bus_factor, collective_name
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import SpecError, WirecostError, one_of
from wirecost.text import printable

MAX_RANKS = 1 << 22
LONGEST_NUMBER = 40
"""The most characters of a printed number."""
SMALLEST, LARGEST = 1e-6, 1e15
"""Limits of a time in microseconds (a picosecond, 30 years) and of a rate."""
MOST_BYTES_PER_NS = 1e9


class ResultFileError(WirecostError):
    """Raised for a file without benchmark results, or with results that lack something needed."""


@dataclass(frozen=True)
class Table:
    """Rows that were measured together: one collective, one group size, one element type.

    Attributes:
        groups: how many groups of `ranks` ranks ran at once; the times are those of one group.
        hosts: number of machines over all ranks; None if the file doesn't give it.
        span: number of machines of one group; None if the file doesn't give it or the groups differ.
        gpu: the GPU's name as the benchmark printed it; None if it printed none or several.
    """

    rows: tuple[Row, ...]
    hosts: int | None = None
    groups: int = 1
    gpu: str | None = None
    span: int | None = None

    @property
    def collective(self) -> str:
        return self.rows[0].collective

    @property
    def ranks(self) -> int:
        return self.rows[0].ranks

    @property
    def dtype(self) -> str:
        return self.rows[0].dtype


@dataclass(frozen=True)
class Reading:
    """The tables of a file.

    Attributes:
        ignored: number of table rows that could not be used, because other output interrupts them or their
            values contradict each other.
        diagnostics: tell which values were corrected or left out, and why.
        corrupt: one line for each result that the benchmark itself found wrong.
    """

    source: str
    tables: tuple[Table, ...]
    ignored: int = 0
    diagnostics: tuple[Diagnostic, ...] = ()
    corrupt: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for table in self.tables for row in table.rows)

    @property
    def every_diagnostic(self) -> tuple[Diagnostic, ...]:
        """The diagnostics, including those for rows that were left out and for wrong results."""
        every = [*self.diagnostics]
        if self.ignored:
            rows = "1 row" if self.ignored == 1 else f"{self.ignored} rows"
            message = f"{rows} left out: interrupted by other output, or with values that contradict each other"
            every.append(diagnostic("rows_left_out", message, count=self.ignored))
        every += [diagnostic("corrupt_results", f"CORRUPT RESULTS: {words}") for words in self.corrupt]
        return tuple(every)

    @property
    def hosts(self) -> int | None:
        """The number of machines if it is the same for all tables, else None."""
        return _common(table.hosts for table in self.tables)

    @property
    def groups(self) -> int:
        """The number of groups that ran at once if it is the same for all tables, else 1."""
        return _common(table.groups for table in self.tables) or 1


def known_collective(program: str) -> str | None:
    """Returns the collective of a program of nccl-tests, such as `all_reduce_perf_mpi`; None if it is unknown."""
    plain = program.strip().lower().removesuffix("_mpi").removesuffix("_perf")
    if plain in READ_ONLY:
        return plain
    try:
        name = collective_name(plain)
    except SpecError:
        return None
    return name if name in COLLECTIVES else None


def _common(values: Iterable[int | None]) -> int | None:
    kinds = set(values)
    return kinds.pop() if len(kinds) == 1 else None


def tables_of(
    rows: Iterable[Row],
    *,
    hosts: int | None = None,
    groups: int = 1,
    gpu: str | None = None,
    span: int | None = None,
) -> list[Table]:
    """Sorts rows of one run into tables, by collective, ranks and element type."""
    rows_of: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        rows_of.setdefault((row.collective, row.ranks, row.dtype), []).append(row)
    return [Table(tuple(table_rows), hosts, groups, gpu, span) for table_rows in rows_of.values()]


def positive(text: object) -> float | None:
    """Returns a finite number above 0; None for anything else ('N/A', 'nan', a negative time)."""
    value = number(text)
    return value if value is not None and value > 0 else None


def number(text: object) -> float | None:
    """Returns a finite number between the limits of a time or rate, or 0; None for anything else."""
    if not isinstance(text, str | int | float) or isinstance(text, bool):
        return None
    if isinstance(text, str) and len(text) > LONGEST_NUMBER:
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if value == 0 or SMALLEST <= abs(value) <= LARGEST else None


def check_rows(rows: Iterable[Row], where: str) -> None:
    """Raises ResultFileError for a row of wirecost's own JSON whose values are impossible."""
    for index, row in enumerate(rows):
        if row.collective not in COLLECTIVES and row.collective != BARRIER:
            raise ResultFileError(f"{where}: rows.{index}: {one_of('collective', row.collective, COLLECTIVES)}")
        times = (row.time_ns, row.p50_ns, row.p95_ns, row.p99_ns, *row.rounds_ns, *row.groups_ns)
        sound = all(t is None or SMALLEST <= t <= LARGEST * 1e3 for t in times)
        sound = sound and row.size_bytes / row.time_ns <= MOST_BYTES_PER_NS
        if not (sound and 0 < row.ranks <= MAX_RANKS and 0 <= row.size_bytes < 2**63 and 0 <= row.count < 2**63):
            raise ResultFileError(f"{where}: rows.{index}: impossible size, time or number of ranks")


def whole(text: object) -> int | None:
    """Returns a non-negative integer below 2^63; None for anything else."""
    if isinstance(text, bool):
        return None
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    if isinstance(text, float) and text.is_integer() and 0 <= text < 2**63:
        return int(text)
    return text if isinstance(text, int) and 0 <= text < 2**63 else None


def count_of(text: object) -> int | None:
    """Returns a non-negative count, which may be printed as 1e+06; None for anything else.

    A count above a million may lose its last digits.
    """
    value = number(text)
    return int(value) if value is not None and value >= 0 and (value.is_integer() or value > 1e6) else None


class _Details(TypedDict, total=False):
    """Properties of a row that only some sources give."""

    count: int
    dtype: str
    redop: str | None
    root: int | None
    wrong: int | None


def row(
    collective: str,
    *,
    size_bytes: int,
    ranks: int,
    time_us: float,
    mode: Mode = Mode.OUT_OF_PLACE,
    percentiles_us: tuple[float | None, float | None, float | None] = (None, None, None),
    **details: Unpack[_Details],
) -> Row:
    """Returns a row whose bandwidths are computed from size and time, so that all sources are comparable."""
    time_ns = time_us * 1e3
    algbw = size_bytes / time_ns * 1e9 if size_bytes else None
    factor = bus_factor(collective, ranks)
    redop = details.get("redop")
    p50, p95, p99 = (None if p is None else p * 1e3 for p in percentiles_us)
    return Row(
        collective=collective,
        size_bytes=size_bytes,
        count=details.get("count", 0),
        dtype=printable(details.get("dtype", "unknown")),
        redop=redop and printable(redop),
        root=details.get("root"),
        mode=mode,
        ranks=ranks,
        time_ns=time_ns,
        algbw_Bps=algbw,
        busbw_Bps=algbw * factor if algbw and factor is not None else None,
        wrong=details.get("wrong"),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
    )
