"""Separates several devices or ranks in one file, so that they never count as one time line."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import numpy as np

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.operations import UNKNOWN
from wirecost.trace.recorded import NONE, Annotation, Columns, Int64, Launches, Recorded

# A device with less than this share of the busiest one's kernels and copies, and with no communication, is another
# rank's that this process touched.
_STRAY_SHARE = 0.01
# Prefixes of a process id that tools for merging traces write: `[TP00-DP00] 0`, `rank3: 0`.
_PREFIX = re.compile(r"^(\[[^\]]{1,80}\]|rank[ _-]?\d+(?=[ :_-]))", re.IGNORECASE)
_NUMBERS = re.compile(r"(\d+)")


def split_devices(recorded: Recorded, diagnostics: DiagnosticCounts) -> list[tuple[str, Recorded]]:
    """Returns (name, recorded events) of each device of a file in order of name; the name of a single device is
    "".

    Annotations, launches and operators are assigned to the device of their process if it is known.
    """
    columns = recorded.device
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, (device, _) in enumerate(columns.streams):
        by_name[device].append(number)
    work: dict[str, int] = {}
    for device, streams in by_name.items():
        rows = np.isin(columns.stream, streams)
        if rows.any():
            work[device] = int((columns.end_ns - columns.start_ns)[rows].sum())
    if len(work) < 2:
        return [("", recorded)]
    communicating = _communicating(recorded)
    most = max(work.values())
    used = sorted(
        (d for d, ns in work.items() if ns >= _STRAY_SHARE * most or communicating & set(by_name[d])), key=_natural
    )
    stray = int(np.isin(columns.stream, [s for d in work if d not in used for s in by_name[d]]).sum())
    diagnostics.add("stray_device", stray)
    if len(used) == 1:
        return [("", _only(recorded, by_name[used[0]], None))]
    diagnostics.add("several_devices", len(used))
    owners = _owners(recorded, {d: by_name[d] for d in used})
    return [(device, _only(recorded, by_name[device], owners[device])) for device in used]


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(t)) if t.isdigit() and t.isascii() else (1, t) for t in _NUMBERS.split(text)]


def _communicating(recorded: Recorded) -> set[int]:
    """Returns the streams that hold communication according to names and arguments."""
    columns = recorded.device
    rows = [row for row, call in columns.calls.items() if call.op != UNKNOWN or call.op_source == "args"]
    return {int(s) for s in columns.stream[rows]} if rows else set()


def _owners(recorded: Recorded, devices: dict[str, list[int]]) -> dict[str, set[str] | None]:
    """Returns for each device the ids of the host processes that worked for it; None for all of them.

    By the prefix that a merging tool put before their ids, else by which process launched the device's work.
    """
    processes = {pid for pid, _ in recorded.launches.threads}
    prefixes = {device: match[1] for device in devices if (match := _PREFIX.match(device))}
    if len(prefixes) == len(devices):
        return {d: {p for p in processes if p.startswith(prefix)} for d, prefix in prefixes.items()}
    if len(processes) < 2:
        return dict.fromkeys(devices)
    launch, columns = recorded.launch, recorded.device
    owners: dict[str, set[str] | None] = {}
    for device, streams in devices.items():
        rows = np.isin(columns.stream, streams) & (launch >= 0)
        threads = np.unique(recorded.launches.thread[launch[rows]]) if rows.any() else []
        owners[device] = {recorded.launches.threads[int(t)][0] for t in threads}
    return owners


def _only(recorded: Recorded, streams: list[int], owners: set[str] | None) -> Recorded:
    """Returns the recorded events of some streams and of some host processes; None means all processes."""
    columns, launches = recorded.device, recorded.launches
    rows = np.flatnonzero(np.isin(columns.stream, streams))
    renumbered = {int(row): number for number, row in enumerate(rows)}
    device = Columns(
        columns.start_ns[rows],
        columns.end_ns[rows],
        columns.kind[rows],
        columns.name[rows],
        columns.stream[rows],
        columns.comm[rows],
        columns.names,
        columns.streams,
        {renumbered[row]: call for row, call in columns.calls.items() if row in renumbered},
        correlation=columns.correlation[rows],
        external=columns.external[rows],
        shape=columns.shape[rows],
        operators={renumbered[row]: name for row, name in columns.operators.items() if row in renumbered},
    )
    threads = [owners is None or pid in owners for pid, _ in launches.threads]

    def own(annotation: Annotation) -> bool:
        return annotation.thread == NONE or threads[annotation.thread]

    return replace(
        recorded,
        device=device,
        gpu_annotations=[a for a in recorded.gpu_annotations if a.stream in streams],
        cpu_annotations=[a for a in recorded.cpu_annotations if own(a)],
        host_ranges=[r for r in recorded.host_ranges if threads[r.thread]],
        launches=_of_threads(launches, threads),
    )


def _of_threads(launches: Launches, threads: list[bool]) -> Launches:
    if all(threads):
        return launches
    keep: Int64 = np.flatnonzero(np.array(threads, dtype=bool)[launches.thread])
    return replace(
        launches,
        start_ns=launches.start_ns[keep],
        end_ns=launches.end_ns[keep],
        correlation=launches.correlation[keep],
        name=launches.name[keep],
        thread=launches.thread[keep],
    )
