"""nccl-tests' JSON (option -J), versions 1 to 3 of the file.

https://github.com/NVIDIA/nccl-tests, src/util.cu.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from wirecost.collectives.operations import COLLECTIVES, collective_name
from wirecost.collectives.readers.base import MAX_RANKS, Reading, ResultFileError, positive, row, whole
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.errors import SpecError


def parse(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Raises ResultFileError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{where}: not readable as JSON: {str(error)[:100]}") from error
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise ResultFileError(f"{where}: JSON, but not nccl-tests': it has no list 'results'")
    collective = _collective(data, where)
    config = _dict(data.get("config"))
    devices = [d for d in _list(config.get("devices")) if isinstance(d, dict)]
    # Each process lists one device, whatever number it drives.
    per_process = (whole(config.get("nthreads")) or 1) * (whole(config.get("ngpus")) or 1)
    n = ranks or len(devices) * per_process
    if not 1 < n <= MAX_RANKS:
        raise ResultFileError(f"{where}: can't tell how many ranks took part; say it: --ranks N")
    found: list[Row] = []
    ignored = 0
    for result in data["results"]:
        rows = _rows(_dict(result), collective, n)
        found += rows
        ignored += not rows
    if not found:
        raise ResultFileError(f"{where}: nccl-tests' JSON without any result")
    hosts = {d["hostname"] for d in devices if isinstance(d.get("hostname"), str)}
    return Reading(where, tuple(found), len(hosts) or None, ignored)


def _collective(data: dict[str, Any], where: str) -> str:
    arguments = _list(data.get("args"))
    program = PurePath(str(arguments[0])).name if arguments else ""
    try:
        name = collective_name(program.removesuffix("_mpi"))
    except SpecError as error:
        raise ResultFileError(f"{where}: can't tell which collective this is from 'args'") from error
    if name not in COLLECTIVES:
        raise ResultFileError(f"{where}: {name} has no sizes")
    return name


def _rows(result: dict[str, Any], collective: str, ranks: int) -> list[Row]:
    size, count = whole(result.get("size")), whole(result.get("count"))
    if not size or count is None:
        return []
    entry = COLLECTIVES[collective]
    found = []
    for mode in Mode:
        body = _dict(result.get(str(mode)))
        time_us = positive(body.get("time", body.get("cpu_time")))
        if time_us is None:
            continue
        each = _dict(result.get(f"{mode}_per_iter"))
        redop = result.get("redop")
        found.append(
            row(
                collective,
                size_bytes=size,
                count=count,
                dtype=str(result.get("type"))[:20],
                redop=str(redop)[:10] if entry.reduces and isinstance(redop, str) else None,
                root=0 if entry.rooted else None,
                ranks=ranks,
                time_us=time_us,
                mode=mode,
                wrong=whole(body.get("nwrong")),
                percentiles_us=(
                    positive(each.get("p50_us")),
                    positive(each.get("p95_us")),
                    positive(each.get("p99_us")),
                ),
            )
        )
    return found


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
