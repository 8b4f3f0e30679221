"""Which rank a file is of: by what it says, by its name, or by what the user says."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wirecost.trace.source import TraceError

# `rank0_`, `rank-34.`, `rank_7`, `worker3_step_12.`, `trace.r12.json`
_BY_NAME = re.compile(r"(?<![a-zA-Z])(?:rank|worker)[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_MAX_RANKS = 10_000_000


def _small(value: object, least: int) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and least <= value < _MAX_RANKS else None
    )


def distributed_info(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What `distributedInfo` says and can mean: `rank`, `world_size`, `backend`, `version`; missing is missing."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return {}
    found: dict[str, Any] = {"rank": _small(info.get("rank"), 0), "world_size": _small(info.get("world_size"), 1)}
    for key, name in (("backend", "backend"), ("nccl_version", "version")):
        if isinstance(info.get(key), str):
            found[name] = info[key][:40]
    return {key: value for key, value in found.items() if value is not None}


def rank_by_name(path: str | Path) -> int | None:
    """The rank that a file's name tells; None where it tells none or several."""
    found = {int(n) for n in _BY_NAME.findall(Path(path).name)}
    return found.pop() if len(found) == 1 else None


def parse_told(told: Iterable[str]) -> list[tuple[str, int]]:
    """`PATTERN=RANK` pairs as the user gives them, in order.

    Raises:
        TraceError: for one that isn't such a pair.
    """
    pairs = []
    for text in told:
        pattern, _, number = text.rpartition("=")
        if not pattern or not number.isascii() or not number.isdigit() or int(number) >= _MAX_RANKS:
            raise TraceError(f"--rank '{text}': expected FILE=RANK, for example 'host2.json=2'")
        pairs.append((pattern, int(number)))
    return pairs


def rank_told(path: str | Path, told: Iterable[tuple[str, int]]) -> int | None:
    """The rank the user gives for a file, by its path, its name or a glob of either."""
    text, name = str(path), Path(path).name
    for pattern, rank in told:
        if pattern in (text, name) or fnmatch.fnmatchcase(text, pattern) or fnmatch.fnmatchcase(name, pattern):
            return rank
    return None
