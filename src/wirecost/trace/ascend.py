"""Ascend's `trace_view.json` (torch_npu's profiler, msprof): tasks of the NPU and collectives of HCCL.

The process `Ascend Hardware` holds the tasks of each stream with their `Task Type`; the process `Communication`
(`HCCL` in older versions) the collectives (`hcom_allReduce__304_0_1` on a thread `Group N Communication`) and, on
threads `Plane N`, the parts of which they consist. `Overlap Analysis` shows the same time again.
"""

from __future__ import annotations

import re

import numpy as np

from wirecost.trace.categories import COPY, KERNEL
from wirecost.trace.lanes import Lanes
from wirecost.trace.recorded import NONE, Annotation, Columns, Recorded

_HARDWARE, _COMMUNICATION = re.compile(r"^Ascend Hardware"), re.compile(r"^(Communication|HCCL)\b")
_GROUP = re.compile(r"^Group \S+ Communication", re.IGNORECASE)
_PARTS = re.compile(r"^Plane\b", re.IGNORECASE)
_COLLECTIVE = re.compile(
    r"^(hcom|mc2|hccl|lccl)|^(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)", re.IGNORECASE
)
# Tasks that compute, and tasks that copy (CANN, task types of the runtime); the rest are events, notifications and
# marks, during which nothing computes.
_COMPUTES = re.compile(r"AI_?CORE|AI_?VEC|AIV|AIC|AI_?CPU|MIX|DVPP|DSA|FFTS", re.IGNORECASE)
_COPIES = re.compile(r"MEMCPY|SDMA|PCIE_?DMA|DMA", re.IGNORECASE)
_IDLE_NAMES = re.compile(
    r"^(EVENT|NOTIFY|WAIT|RECORD|PLACE_HOLDER|PROFIL|MODEL_|CAPTURE|CMO|LABEL|BARRIER)", re.IGNORECASE
)
_STEP = re.compile(r"^ProfilerStep#\d{1,18}$")


def is_ascend(process_names: list[str]) -> bool:
    return any(_HARDWARE.search(name) for name in process_names)


def ascend_recorded(lanes: Lanes) -> Recorded:
    """Returns the device work of an Ascend profile: each collective is one event on its group's own stream."""
    hardware = np.array([bool(_HARDWARE.search(p)) for p, _, _ in lanes.lanes], dtype=bool)
    collective = np.array(
        [bool(_COMMUNICATION.search(p)) and not _PARTS.search(t) for p, t, _ in lanes.lanes], dtype=bool
    )
    group = np.array([bool(_GROUP.search(t)) for _, t, _ in lanes.lanes], dtype=bool)
    types = lanes.text("Task Type")
    kinds: list[int] = []
    rows: list[int] = []
    operators: dict[int, str] = {}
    for row, (lane, name) in enumerate(zip(lanes.lane, lanes.name, strict=True)):
        text = lanes.names[name]
        if hardware[lane]:
            kind = _kind(text, types[row])
            if kind is None:
                continue
            kinds.append(kind)
        elif collective[lane] and (group[lane] or _COLLECTIVE.search(text)):
            operators[len(rows)] = text
            kinds.append(KERNEL)
        else:
            continue
        rows.append(row)
    chosen = np.array(rows, dtype=np.int64)
    devices = _devices(lanes)
    columns = Columns(
        lanes.start_ns[chosen],
        lanes.end_ns[chosen],
        np.array(kinds, dtype=np.int8),
        lanes.name[chosen],
        lanes.lane[chosen],
        np.zeros(len(chosen), dtype=np.bool_),
        lanes.names,
        [(devices[pid], t or f"{p} {number}") for number, (p, t, pid) in enumerate(lanes.lanes)],
        {},
        operators=operators,
    )
    steps = [
        Annotation(lanes.names[n], int(s), int(e), NONE, int(lane))
        for n, s, e, lane in zip(lanes.name, lanes.start_ns, lanes.end_ns, lanes.lane, strict=True)
        if _STEP.match(lanes.names[n])
    ]
    return Recorded(device=columns, cpu_annotations=sorted(steps, key=lambda a: a.start_ns))


def _kind(name: str, task_type: str) -> int | None:
    """Returns the kind of a hardware task; None if the task is not work."""
    if task_type:
        return KERNEL if _COMPUTES.search(task_type) else COPY if _COPIES.search(task_type) else None
    if _COPIES.match(name):
        return COPY
    return None if _IDLE_NAMES.match(name) else KERNEL


def _devices(lanes: Lanes) -> dict[str, str]:
    """Returns one device for all processes of a file: the profiler writes a file for each NPU."""
    return dict.fromkeys((pid for _, _, pid in lanes.lanes), "npu")
