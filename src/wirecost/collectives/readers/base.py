"""What every reader gives, and the checks that every number from outside passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wirecost.collectives.operations import COLLECTIVES
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.errors import WirecostError

MAX_RANKS = 1 << 22


class ResultFileError(WirecostError):
    """A file that holds no benchmark results, or not all that is needed of them."""


@dataclass(frozen=True)
class Reading:
    """Rows from a file. `hosts` is None where the file doesn't tell; `groups` ran at once; `ignored` counts
    lines of a table that could not be read (a log that broke off, another program's output in between)."""

    source: str
    rows: tuple[Row, ...]
    hosts: int | None = None
    ignored: int = 0
    groups: int = 1


def positive(text: object) -> float | None:
    """A finite number above 0, else None ('N/A', 'nan', a negative time)."""
    if not isinstance(text, str | int | float) or isinstance(text, bool):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and value > 0 else None


def whole(text: object) -> int | None:
    """A whole number of at least 0 that a size can be, else None."""
    if isinstance(text, bool):
        return None
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    if isinstance(text, float) and text.is_integer() and 0 <= text < 2**63:
        return int(text)
    return text if isinstance(text, int) and 0 <= text < 2**63 else None


def row(
    collective: str,
    *,
    size_bytes: int,
    ranks: int,
    time_us: float,
    mode: Mode = Mode.OUT_OF_PLACE,
    count: int = 0,
    dtype: str = "unknown",
    redop: str | None = None,
    root: int | None = None,
    wrong: int | None = None,
    percentiles_us: tuple[float | None, float | None, float | None] = (None, None, None),
) -> Row:
    """A row whose bandwidths follow from size and time, so that every source's mean the same."""
    entry = COLLECTIVES.get(collective)
    time_ns = time_us * 1e3
    algbw = size_bytes / time_ns * 1e9 if size_bytes else None
    p50, p95, p99 = (None if p is None else p * 1e3 for p in percentiles_us)
    return Row(
        collective=collective,
        size_bytes=size_bytes,
        count=count,
        dtype=dtype,
        redop=redop,
        root=root,
        mode=mode,
        ranks=ranks,
        time_ns=time_ns,
        algbw_Bps=algbw,
        busbw_Bps=algbw * entry.bus_factor(ranks) if algbw and entry else None,
        wrong=wrong,
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
    )
