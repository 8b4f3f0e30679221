"""Reads Nsight Systems' SQLite export into the same columns as a profiler trace.

The schema is in NVIDIA's Nsight Systems User Guide, "Exporter", SQLite schema reference. Times are integer ns
since the session's start. Operations are inferred from kernel names; process groups and bytes aren't recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.trace.categories import COPY, FILL, KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.nsys_database import Database
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS
from wirecost.trace.packed_rows import PackedRows
from wirecost.trace.recorded import NONE, Annotation, Columns, HostRange, Launches, Recorded
from wirecost.trace.source import TraceError

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY),
    ("CUPTI_ACTIVITY_KIND_MEMSET", FILL),
)
_PUSH_POP, _START_END = 59, 60  # NVTX_EVENTS.eventType of ranges
MOST_PROCESSES = 256
"""Of one export that run kernels. A node's ranks are 8 or 16, with split GPUs (MIG) up to 56 or so."""
_VERSION = re.compile(r"_(v\d+|ptsz|ptds)+$")
# ENUM_CUDA_MEMCPY_OPER of the exporter, as CUPTI's kinds of copies are written in profiler traces.
_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "HtoD, unified memory", 12: "DtoH, unified memory", 13: "DtoD, unified memory",
}  # fmt: skip
# A globalTid holds its process in its upper bits (User Guide, "Common SQLite examples").
_OF_PROCESS = " AND (typeof(globalTid) <> 'integer' OR globalTid >> 24 << 24 = ?)"


def _id(value: Any) -> int:
    """Returns a correlation id. In the export 0 means none."""
    return value if isinstance(value, int) and 0 < value < 2**62 else NONE


def _process_of(tid: int) -> int:
    """Returns the process of a globalTid, which holds it in its upper bits (User Guide, "Common SQLite
    examples")."""
    return tid // 0x1000000 * 0x1000000


def _owners(threads: Iterable[int]) -> list[tuple[str, str]]:
    """Returns (process, thread) of each globalTid."""
    return [(str(_process_of(tid)), str(tid)) for tid in threads]


def _copy_name(kind: Any, source: Any, destination: Any) -> str:
    """Returns a copy's name by its kind. A copy between two devices is a peer copy, whatever its kind."""
    if isinstance(source, int) and isinstance(destination, int) and source != destination:
        return "Memcpy PtoP"
    known = _COPY_KINDS.get(kind) if isinstance(kind, int) else None
    return f"Memcpy {known}" if known else "Memcpy"


class Export(Database):
    """An export opened read-only. Any fault of the database is a TraceError that names it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._strings: dict[int, str] | None = None

    def __enter__(self) -> Export:
        # A virtual table has no page.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        try:
            tables = {name for (name,) in self.rows(query)}
        except TraceError:
            self.close()
            raise
        if not tables & {name for name, _ in _TABLES}:
            self.close()
            raise TraceError(
                f"{self._path}: no table {_TABLES[0][0]}; expected an Nsight Systems export of a run profiled "
                "with --trace=cuda (nsys export --type sqlite)"
            )
        self._present = tables
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def processes(self) -> list[int | None]:
        """Returns the processes that ran kernels, by their `globalPid` in ascending order. Each is a rank.

        The list is [None] if the export doesn't distinguish processes.

        Raises:
            TraceError: for more than `MOST_PROCESSES`.
        """
        kernels = _TABLES[0][0]
        if "globalPid" not in self.columns(kernels):
            return [None]
        query = f'SELECT DISTINCT globalPid FROM "{kernels}" ORDER BY 1 LIMIT {MOST_PROCESSES + 1}'  # noqa: S608 - constants
        process_ids = [pid for (pid,) in self.rows(query)]
        if len(process_ids) > MOST_PROCESSES:
            raise TraceError(
                f"{self._path}: more than {MOST_PROCESSES} processes ran kernels; expected one node's, a process "
                "for each GPU"
            )
        return process_ids

    def strings(self) -> dict[int, str]:
        """Returns the export's texts by their number."""
        if self._strings is None:
            self._strings = {}
            if "StringIds" in self._present and {"id", "value"} <= self.columns("StringIds"):
                rows = self.rows("SELECT id, value FROM StringIds")
                self._strings = {i: v for i, v in rows if isinstance(v, str)}
        return self._strings

    def recorded(
        self, classifier: Classifier, diagnostics: DiagnosticCounts, process: int | None = None
    ) -> tuple[Recorded, int]:
        """Returns one process of the export (all, without `process`), and how many rows it has.

        Raises:
            TraceError: for a broken database.
        """
        strings = self.strings()
        names: dict[str, int] = {}
        streams: dict[tuple[str, str], int] = {}
        shapes: dict[tuple[Any, ...], int] = {}
        table = PackedRows(7)
        count = 0
        for source, kind in _TABLES:
            if source not in self._present:
                continue
            for start, end, device, stream, text, correlation, shape in self._device(
                source, kind, process, strings
            ):
                count += 1
                if not (isinstance(start, int) and isinstance(end, int)):
                    diagnostics.add("bad_time")
                elif not (abs(start) < LIMIT_NS and abs(end) < LIMIT_NS and end - start <= LONGEST_NS):
                    diagnostics.add("out_of_range")
                elif end < start:
                    diagnostics.add("negative_duration")
                elif text is None:
                    diagnostics.add("unnamed_event")
                else:
                    where = streams.setdefault((str(device)[:80], str(stream)[:80]), len(streams))
                    name = names.setdefault(text, len(names))
                    number = shapes.setdefault(shape, len(shapes)) if shape is not None else NONE
                    table.add(start, end, kind, name, where, _id(correlation), number)
        if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in self._present:
            graphs = next(self.rows("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))[0]
            diagnostics.add("graphs_opaque", graphs)
        data = table.columns()
        diagnostics.add("zero_duration", int((data[0] == data[1]).sum()))
        columns = Columns(
            data[0], data[1], data[2].astype(np.int8), data[3], data[4], np.zeros(len(data[0]), dtype=np.bool_),
            list(names), list(streams), {}, correlation=data[5], shape=data[6],
        )  # fmt: skip
        threads: dict[int, int] = {}
        annotations: list[Annotation] = []
        ranges: list[HostRange] = []
        for label, start, end, thread in self._ranges(process, strings):
            number = threads.setdefault(thread, len(threads))
            if classifier.annotates(label):
                plain = label.split(", op_id = ", 1)[0].split(", seq = ", 1)[0]
                ranges.append(HostRange(plain, start, end, number, NONE, annotation=True))
            annotations.append(Annotation(label, start, end, NONE, number))
        launches = self._launches(process, strings, threads)
        annotations.sort(key=lambda a: (a.start_ns, -a.end_ns, a.name))
        recorded = Recorded(
            device=columns,
            cpu_annotations=annotations,
            host_ranges=ranges,
            launches=launches,
            metadata=self._metadata(),
            names_only=True,
        )
        return recorded, count

    def _device(
        self, table: str, kind: int, process: int | None, strings: dict[int, str]
    ) -> Iterator[tuple[Any, Any, Any, Any, str | None, Any, tuple[Any, ...] | None]]:
        """Yields (start, end, device, stream, name, correlation id, grid) of each row."""
        have = self.columns(table)
        name = "demangledName" if "demangledName" in have else "shortName" if "shortName" in have else "NULL"
        columns = (
            "start", '"end"', "deviceId", "streamId", "correlationId", "gridX", "gridY", "gridZ", "copyKind",
            "srcDeviceId", "dstDeviceId",
        )  # fmt: skip
        wanted = ", ".join(c if c.strip('"') in have else "NULL" for c in columns)
        query = f'SELECT {wanted}, {name} FROM "{table}"'  # noqa: S608 - constants
        arguments: tuple[Any, ...] = ()
        if process is not None and "globalPid" in have:
            query, arguments = query + " WHERE globalPid = ?", (process,)
        for start, end, device, stream, correlation, *rest, key in self.rows(query, arguments):
            *grid, copy, source, destination = rest
            shape = tuple(grid) if kind == KERNEL and None not in grid else None
            if kind == KERNEL:
                text = key if isinstance(key, str) else strings.get(key)
            else:
                text = _copy_name(copy, source, destination) if kind == COPY else "Memset"
            yield start, end, device, stream, text, correlation, shape

    def _launches(self, process: int | None, strings: dict[int, str], threads: dict[int, int]) -> Launches:
        """Returns the host calls of a process; every process's correlation ids are its own."""
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        have = self.columns(table) if table in self._present else set()
        if not {"start", "end", "correlationId"} <= have:
            return Launches(threads=_owners(threads))
        name, thread = ("nameId" if "nameId" in have else "NULL"), ("globalTid" if "globalTid" in have else "NULL")
        rows = PackedRows(5)
        numbers: dict[str, int] = {}
        query = f'SELECT start, "end", correlationId, {name}, {thread} FROM "{table}" WHERE 1'  # noqa: S608 - constants
        arguments: tuple[Any, ...] = ()
        if process is not None and thread != "NULL":
            query += _OF_PROCESS
            arguments = (process,)
        for start, end, correlation, key, tid in self.rows(query, arguments):
            if not (isinstance(start, int) and isinstance(end, int)):
                continue
            if not 0 <= start <= end < min(LIMIT_NS, start + LONGEST_NS):
                continue
            # Names carry the version of the interface: cudaLaunchKernel_v7000.
            text = _VERSION.sub("", strings.get(key, "")) if isinstance(key, int) else ""
            where = threads.setdefault(tid if isinstance(tid, int) else 0, len(threads))
            rows.add(start, end, _id(correlation), numbers.setdefault(text, len(numbers)), where)
        data = rows.columns()
        data = data[:, np.lexsort((-data[1], data[0]))]
        return Launches(data[0], data[1], data[2], data[3], data[4], list(numbers), _owners(threads))

    def _ranges(self, process: int | None, strings: dict[int, str]) -> Iterator[tuple[str, int, int, int]]:
        """Yields (name, start, end, thread) of NVTX ranges."""
        if "NVTX_EVENTS" not in self._present:
            return
        have = self.columns("NVTX_EVENTS")
        if not {"start", "end", "eventType"} <= have:
            return
        text, key, thread = (c if c in have else "NULL" for c in ("text", "textId", "globalTid"))
        query = f'SELECT start, "end", {text}, {key}, {thread} FROM NVTX_EVENTS WHERE eventType IN (?, ?)'  # noqa: S608
        arguments: tuple[Any, ...] = (_PUSH_POP, _START_END)
        if process is not None and thread != "NULL":
            query += _OF_PROCESS
            arguments += (process,)
        for start, end, name, number, tid in self.rows(query, arguments):
            label = name if isinstance(name, str) else strings.get(number)
            if (
                label
                and isinstance(start, int)
                and isinstance(end, int)
                and 0 <= start <= end < min(LIMIT_NS, start + LONGEST_NS)
            ):
                yield label, start, end, tid if isinstance(tid, int) else 0

    def _metadata(self) -> dict[str, Any]:
        if "TARGET_INFO_SESSION_START_TIME" not in self._present:
            return {}
        if "utcEpochNs" not in self.columns("TARGET_INFO_SESSION_START_TIME"):
            return {}
        row = next(self.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1"), None)
        return {"baseTimeNanoseconds": row[0]} if row and isinstance(row[0], int) else {}
