"""The text of cells in the tables that people read."""

from __future__ import annotations

import math
from typing import Any


def ms(ns: float | None) -> str:
    """Returns a time in ns as milliseconds."""
    return "unknown" if ns is None else f"{ns / 1e6:,.3f}" if abs(ns) < 1e9 else f"{ns / 1e6:,.1f}"


def share(value: float | None) -> str:
    """Returns a share as a percentage; a dash stands for a share of nothing."""
    return "–" if value is None else f"{value:.1%}"


def size(value: int | None) -> str:
    """Returns a number of bytes with its unit."""
    if value is None:
        return "unknown"
    scaled = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024 or unit == "GiB":
            break
        scaled /= 1024
    return f"{scaled:,.1f} {unit}" if unit != "B" else f"{value} B"


def rank_text(rank: int | None) -> str:
    """Returns a rank; a question mark stands for an unknown one."""
    return "?" if rank is None else str(rank)


def cut(text: str, width: int) -> str:
    """Returns a text that is cut after `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def cell_text(column: str, value: Any) -> str:
    """Returns a value of a table's column; times in ns become milliseconds."""
    if value is None:
        return "unknown"
    if column.endswith("_ns"):
        return ms(value)
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value)
