"""JSON of nccl-tests (option -J, versions 1 to 3 of the file) and of rccl-tests (a list of results).

https://github.com/NVIDIA/nccl-tests, src/util.cu.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from wirecost.collectives.operations import COLLECTIVES, READ_ONLY
from wirecost.collectives.readers.base import (
    Reading,
    ResultFileError,
    count_of,
    known_collective,
    positive,
    row,
    tables_of,
    whole,
)
from wirecost.collectives.readers.group_size import Devices, factor_agrees, group_size, ratio_ranks
from wirecost.collectives.readers.printed import Printed, agree, printed
from wirecost.collectives.request import Mode
from wirecost.collectives.result import Row
from wirecost.diagnostics import diagnostic


def parse(data: Any, where: str, *, ranks: int | None = None) -> Reading:
    """Reads decoded JSON of nccl-tests or rccl-tests. Raises ResultFileError if it has no usable result."""
    if isinstance(data, list):
        return _parse_list(data, where, ranks)
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise ResultFileError(f"{where}: this JSON is not nccl-tests' output: it has no list 'results'")
    collective = _collective(data, where)
    config = _dict(data.get("config"))
    listed = [d for d in _list(config.get("devices")) if isinstance(d, dict)]
    # Each process lists one device, even if it drives several.
    per_process = (whole(config.get("nthreads")) or 1) * (whole(config.get("ngpus")) or 1)
    devices = Devices()
    for process, device in enumerate(listed):
        host, gpu = str(device.get("hostname"))[:255], str(device.get("device_info") or "")[:60]
        group = whole(device.get("group")) or 0
        for k in range(min(per_process, 1024)):
            devices.listed.append((process * per_process + k, group, host, gpu))
    results = [_dict(result) for result in data["results"]]
    bodies = [(r, mode, _dict(r.get(str(mode)))) for r in results for mode in Mode]
    size = group_size(collective, devices, ratio_ranks(collective, _pairs(bodies)), ranks, where)
    diagnostics = [size.diagnostic] if size.diagnostic else []
    rows: list[Row] = []
    ignored = 0
    for result, mode, body in bodies:
        if not body:
            continue
        parsed = _row(result, mode, body, collective, size.ranks)
        ignored += parsed is None
        rows += [parsed] if parsed is not None else []
    if any("cpu_time" in body for _, _, body in bodies):
        message = "the file gives the CPU's launch times (-C); times shown here are size over alg_bw"
        diagnostics.append(diagnostic("cpu_times", message))
    if not rows:
        raise ResultFileError(f"{where}: nccl-tests' JSON has no result whose size, time and bandwidths agree")
    tables = tables_of(rows, hosts=devices.hosts, groups=size.groups, gpu=devices.gpu, span=devices.span)
    return Reading(where, tuple(tables), ignored, tuple(diagnostics), tuple(_corrupt(data, rows)))


def _corrupt(data: dict[str, Any], rows: list[Row]) -> list[str]:
    corrupt = []
    if wrong := [r for r in rows if r.wrong]:
        corrupt.append(
            f"{wrong[0].collective} of {wrong[0].size_bytes} B: {wrong[0].wrong} elements are wrong; "
            f"{len(wrong)} of {len(rows)} results are wrong"
        )
    bounds = count_of(_dict(data.get("out_of_bounds")).get("count"))
    if bounds:
        corrupt.append(f"the benchmark reports {bounds} values out of bounds")
    return corrupt


def _pairs(bodies: list[tuple[dict[str, Any], Mode, dict[str, Any]]]) -> list[tuple[Printed, Printed]]:
    pairs = []
    for _, _, body in bodies:
        algbw, busbw = _printed(body.get("alg_bw")), _printed(body.get("bus_bw"))
        if algbw is not None and busbw is not None and algbw.value > 0:
            pairs.append((algbw, busbw))
    return pairs


def _collective(data: dict[str, Any], where: str) -> str:
    arguments = _list(data.get("args"))
    program = PurePath(str(arguments[0])).name if arguments else ""
    name = known_collective(program)
    if name is None:
        raise ResultFileError(f"{where}: 'args' does not name a known collective")
    return name


def _row(result: dict[str, Any], mode: Mode, body: dict[str, Any], collective: str, ranks: int) -> Row | None:
    """Returns the row of one mode; None if its values are missing or contradict each other."""
    size, count = whole(result.get("size")), whole(result.get("count"))
    algbw, time = _printed(body.get("alg_bw")), _printed(body.get("time"))
    busbw = _printed(body.get("bus_bw"))
    if not size or count is None:
        return None
    if algbw is not None and busbw is not None and not factor_agrees(collective, ranks, algbw, busbw):
        return None
    if "cpu_time" in body:
        time_us = size / (algbw.value * 1e3) if algbw is not None and algbw.value > 0 else None
    else:
        time_us = time.value if time is not None and time.value > 0 else None
        if time is not None and algbw is not None and not agree(size, time, algbw):
            return None
    if time_us is None:
        return None
    entry = COLLECTIVES.get(collective)
    each = _dict(result.get(f"{mode}_per_iter"))
    redop = result.get("redop")
    return row(
        collective,
        size_bytes=size,
        count=count,
        dtype=str(result.get("type"))[:20],
        redop=str(redop)[:10] if entry is not None and entry.reduces and isinstance(redop, str) else None,
        root=0 if collective in READ_ONLY or (entry is not None and entry.rooted) else None,
        ranks=ranks,
        time_us=time_us,
        mode=mode,
        wrong=count_of(body.get("nwrong")),
        percentiles_us=(positive(each.get("p50_us")), positive(each.get("p95_us")), positive(each.get("p99_us"))),
    )


def _parse_list(data: list[Any], where: str, ranks: int | None) -> Reading:
    """Reads rccl-tests' JSON: one object for each size and mode. Raises ResultFileError."""
    rows: list[Row] = []
    ignored = 0
    hosts: set[int] = set()
    for item in (_dict(item) for item in data):
        name = known_collective(str(item.get("name", ""))[:40].replace("_perf", ""))
        size, time, algbw = whole(item.get("size")), _printed(item.get("time")), _printed(item.get("algBw"))
        n = ranks or whole(item.get("ranks"))
        if name is None or not size or time is None or time.value <= 0:
            ignored += 1
            continue
        if n is None:
            raise ResultFileError(f"{where}: the number of ranks is unknown; give it with --ranks N")
        if n < 2 or (algbw is not None and not agree(size, time, algbw)):
            ignored += 1
            continue
        hosts.add(whole(item.get("nodes")) or 0)
        rows.append(
            row(
                name,
                size_bytes=size,
                dtype=str(item.get("type"))[:20],
                ranks=n,
                time_us=time.value,
                mode=Mode.IN_PLACE if item.get("inPlace") else Mode.OUT_OF_PLACE,
                wrong=count_of(item.get("wrong")),
            )
        )
    if not rows:
        raise ResultFileError(
            f"{where}: this JSON list has no usable rccl-tests result (an object with name, size, time, algBw)"
        )
    nodes = hosts.pop() if len(hosts) == 1 else 0
    return Reading(where, tuple(tables_of(rows, hosts=nodes or None)), ignored, (), tuple(_corrupt({}, rows)))


def _printed(value: object) -> Printed | None:
    """Returns a number with its rounding error; JSON drops trailing zeros, so the error may be overestimated."""
    return printed(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
