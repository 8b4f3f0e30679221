"""Finds the rank of a file from its content, its name or the user's option."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wirecost.text import encodable
from wirecost.trace.source import TraceError

# `rank0_`, `rank-34.`, `global_rank7`.
_BY_NAME = re.compile(r"([a-zA-Z]*)([-_.]?)rank[-_.]?(\d{1,7})(?!\d)(?=(?:[-_.]([a-zA-Z]*))?)", re.IGNORECASE)
# A rank of a part of the job (`local_rank0`, `tp_rank1`) is not the job's.
_OF_A_PART = frozenset(
    ("local", "node", "host", "machine", "group", "intra", "inter", "shard", "replica", "tensor", "data", "pipe",
     "pipeline", "expert", "context", "sequence", "model", "tp", "dp", "pp", "ep", "cp", "sp", "mp", "etp", "edp")
)  # fmt: skip
# The rank of a matrix: `lora_rank16`, `rank-8-adapter`.
_OF_A_MATRIX = frozenset(
    ("lora", "qlora", "dora", "qdora", "adalora", "rslora", "relora", "galore", "lowrank", "low", "adapter", "svd")
)  # fmt: skip
# `worker3_step_12.`: a name that the job gave its ranks, unless it is the host's. PyTorch's
# tensorboard_trace_handler writes `{host name}_{process id}.{time}.pt.trace.json`, and a host may be called
# worker-3.
_WORKER = re.compile(r"(?<![a-zA-Z0-9.-])worker[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HOST_AND_PROCESS = re.compile(r"(?<!step)_\d+\.\d{10,}\.pt\.trace\.json")
# Ascend's profiler gives the traces of all ranks the same name, and writes the rank in another file's name.
_ASCEND_FILE, _ASCEND_RANK = "trace_view.json", re.compile(r"profiler_info_(\d{1,7})\.json")
_MOST_ENTRIES = 1000
_MAX_RANKS = 10_000_000


def _small(value: object, least: int) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and least <= value < _MAX_RANKS else None
    )


_LONGEST_HOST = 253  # characters of a name in DNS (RFC 1035)


def distributed_info(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of `rank`, `world_size`, `backend` and `version` that `distributedInfo` gives with valid
    values.
    """
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return {}
    values: dict[str, Any] = {"rank": _small(info.get("rank"), 0), "world_size": _small(info.get("world_size"), 1)}
    for key, name in (("backend", "backend"), ("nccl_version", "version")):
        if isinstance(info.get(key), str):
            values[name] = info[key][:40]
    return {key: value for key, value in values.items() if value is not None}


def rank_by_name(path: str | Path) -> int | None:
    """Returns the rank in a file's name; None if it contains none or several, or if the number may be a host's.

    An Ascend trace always has the same name. Its rank is in the name of a file that its profiler wrote one folder
    above.
    """
    path = Path(path)
    if not _HOST_AND_PROCESS.search(path.name):
        numbers = {int(n) for n in _WORKER.findall(path.name)}
        for word, separator, number, following in _BY_NAME.findall(path.name):
            of_a_matrix = {word.lower(), following.lower()} & _OF_A_MATRIX
            if word.lower() not in _OF_A_PART and not of_a_matrix and not (word and not separator):
                numbers.add(int(number))
        if numbers:
            return numbers.pop() if len(numbers) == 1 else None
    return _ascend_rank(path) if path.name == _ASCEND_FILE else None


def _ascend_rank(path: Path) -> int | None:
    """Returns the rank in the name of the profiler's info file, such as `profiler_info_3.json`; None if it is
    unknown.
    """
    try:
        names = [entry.name for entry in itertools.islice(path.parent.parent.iterdir(), _MOST_ENTRIES)]
    except OSError:
        return None
    numbers = {int(match[1]) for name in names if (match := _ASCEND_RANK.fullmatch(name))}
    return numbers.pop() if len(numbers) == 1 else None


def parse_rank_options(options: Iterable[str]) -> list[tuple[str, int]]:
    """Returns `PATTERN=RANK` pairs as the user gives them, in order.

    Raises:
        TraceError: for one that isn't such a pair.
    """
    pairs = []
    for text in options:
        pattern, _, number = text.rpartition("=")
        if not pattern or not number.isascii() or not number.isdigit() or int(number) >= _MAX_RANKS:
            raise TraceError(f"--rank '{text}': expected FILE=RANK, for example 'host2.json=2'")
        pairs.append((pattern, int(number)))
    return pairs


def rank_by_option(path: str | Path, options: Iterable[tuple[str, int]]) -> int | None:
    """Returns the rank that the user gives for a file by its path, its name or a glob of either; None if there is
    none.
    """
    text, name = str(path), Path(path).name
    for pattern, rank in options:
        if pattern in (text, name) or fnmatch.fnmatchcase(text, pattern) or fnmatch.fnmatchcase(name, pattern):
            return rank
    return None


def host_name(metadata: dict[str, Any]) -> str | None:
    """Returns the name of the host that `host_name` gives; None without a plausible one."""
    name = metadata.get("host_name")
    return encodable(name) if isinstance(name, str) and 0 < len(name) <= _LONGEST_HOST else None
