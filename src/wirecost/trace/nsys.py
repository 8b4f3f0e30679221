"""Nsight Systems' SQLite export to the same columns as a profiler trace.

Schema: NVIDIA Nsight Systems User Guide, "Exporter", SQLite schema reference. Times are integer ns since the
session's start. Kernel names tell the operation; process groups and bytes aren't recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.trace.classify import COPY, FILL, KERNEL, Classifier, operation
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import Annotation, Call, Columns, Recorded
from wirecost.trace.source import TraceError

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY),
    ("CUPTI_ACTIVITY_KIND_MEMSET", FILL),
)
_PUSH_POP, _START_END = 59, 60  # NVTX_EVENTS.eventType of ranges
_COPY_NAMES = {COPY: "Memcpy", FILL: "Memset"}


def processes(path: Path) -> list[int | None]:
    """The processes that ran kernels, by their `globalPid`, in ascending order: each is a rank's.

    [None] where the export doesn't tell processes apart.
    """
    with _Export(path) as export:
        kernels = _TABLES[0][0]
        if "globalPid" not in export.columns(kernels):
            return [None]
        return [pid for (pid,) in export.rows(f'SELECT DISTINCT globalPid FROM "{kernels}" ORDER BY 1')]  # noqa: S608 - a constant


def read_nsys(
    path: Path, classifier: Classifier, problems: Problems, process: int | None = None
) -> tuple[Recorded, int]:
    """One process of an export (all, without `process`), and how many rows it has.

    Raises:
        TraceError: for a database that is no such export, or a broken one.
    """
    with _Export(path) as export:
        return export.recorded(classifier, problems, process)


class _Export:
    """An export opened read-only; any fault of the database is a TraceError that names it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        except sqlite3.Error as error:
            raise TraceError(f"{path}: {error}") from error

    def __enter__(self) -> _Export:
        tables = {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables & {name for name, _ in _TABLES}:
            self._db.close()
            raise TraceError(
                f"{self._path}: no table {_TABLES[0][0]}; expected an Nsight Systems export of a run profiled "
                "with --trace=cuda (nsys export --type sqlite)"
            )
        self._present = tables
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, query: str, arguments: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(query, arguments)
        except sqlite3.Error as error:
            raise TraceError(f"{self._path}: not a sound Nsight Systems export: {error}") from error

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self.rows(f'PRAGMA table_info("{table}")')}

    def recorded(self, classifier: Classifier, problems: Problems, process: int | None) -> tuple[Recorded, int]:
        strings: dict[int, str] = {}
        if "StringIds" in self._present:
            strings = {i: v for i, v in self.rows("SELECT id, value FROM StringIds") if isinstance(v, str)}
        names: dict[str, int] = {}
        streams: dict[tuple[str, str], int] = {}
        table: list[tuple[int, int, int, int, int, bool]] = []
        calls: dict[int, Call] = {}
        count = 0
        for source, kind in _TABLES:
            if source not in self._present:
                continue
            for start, end, device, stream, text in self._device(source, kind, process, strings):
                count += 1
                if not (isinstance(start, int) and isinstance(end, int)):
                    problems.add("bad_time")
                elif not (abs(start) < LIMIT_NS and abs(end) < LIMIT_NS and end - start <= LONGEST_NS):
                    problems.add("out_of_range")
                elif end < start:
                    problems.add("negative_duration")
                elif text is None:
                    problems.add("unnamed_event")
                else:
                    comm = classifier.communicates(text, kind)
                    if comm:
                        calls[len(table)] = Call(op=operation(text))
                    where = streams.setdefault((str(device), str(stream)), len(streams))
                    table.append((start, end, kind, names.setdefault(text, len(names)), where, comm))
        problems.add("nsys_inferred", len(calls))
        if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in self._present:
            graphs = next(self.rows("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))[0]
            problems.add("graphs_opaque", graphs)
        data = np.array(table, dtype=np.int64).reshape(-1, 6)
        problems.add("zero_duration", int((data[:, 0] == data[:, 1]).sum()))
        columns = Columns(
            data[:, 0], data[:, 1], data[:, 2].astype(np.int8), data[:, 3], data[:, 4],
            data[:, 5].astype(np.bool_), list(names), list(streams), calls,
        )  # fmt: skip
        annotations = sorted(self._ranges(process, strings), key=lambda a: (a.start_ns, -a.end_ns, a.name))
        return Recorded(device=columns, cpu_annotations=annotations, metadata=self._metadata()), count

    def _device(
        self, table: str, kind: int, process: int | None, strings: dict[int, str]
    ) -> Iterator[tuple[Any, Any, Any, Any, str | None]]:
        have = self.columns(table)
        name = "demangledName" if "demangledName" in have else "shortName" if "shortName" in have else "NULL"
        wanted = ", ".join(c if c in have else "NULL" for c in ("start", "end", "deviceId", "streamId"))
        query = f'SELECT {wanted.replace("end", chr(34) + "end" + chr(34))}, {name} FROM "{table}"'  # noqa: S608 - constants
        arguments: tuple[Any, ...] = ()
        if process is not None and "globalPid" in have:
            query, arguments = query + " WHERE globalPid = ?", (process,)
        for start, end, device, stream, key in self.rows(query, arguments):
            text = _COPY_NAMES.get(kind) or (key if isinstance(key, str) else strings.get(key))
            yield start, end, device, stream, text

    def _ranges(self, process: int | None, strings: dict[int, str]) -> Iterator[Annotation]:
        if "NVTX_EVENTS" not in self._present:
            return
        have = self.columns("NVTX_EVENTS")
        if not {"start", "end", "eventType"} <= have:
            return
        text, key, thread = (c if c in have else "NULL" for c in ("text", "textId", "globalTid"))
        query = f'SELECT start, "end", {text}, {key}, {thread} FROM NVTX_EVENTS WHERE eventType IN (?, ?)'  # noqa: S608
        for start, end, name, number, tid in self.rows(query, (_PUSH_POP, _START_END)):
            # A globalTid holds its process in its upper bits (User Guide, "Common SQLite examples").
            if process is not None and isinstance(tid, int) and tid // 0x1000000 * 0x1000000 != process:
                continue
            label = name if isinstance(name, str) else strings.get(number)
            if (
                label
                and isinstance(start, int)
                and isinstance(end, int)
                and 0 <= start <= end < min(LIMIT_NS, start + LONGEST_NS)
            ):
                yield Annotation(label, start, end, -1)

    def _metadata(self) -> dict[str, Any]:
        if "TARGET_INFO_SESSION_START_TIME" not in self._present:
            return {}
        if "utcEpochNs" not in self.columns("TARGET_INFO_SESSION_START_TIME"):
            return {}
        row = next(self.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1"), None)
        return {"baseTimeNanoseconds": row[0]} if row and isinstance(row[0], int) else {}
