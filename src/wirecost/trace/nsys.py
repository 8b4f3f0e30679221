"""Nsight Systems' SQLite export to the same columns as a profiler trace.

Schema: NVIDIA Nsight Systems User Guide, "Exporter", SQLite schema reference. Times are integer ns since the
session's start. Kernel names tell the operation; process groups and bytes aren't recorded.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wirecost.reading import open_file
from wirecost.trace.categories import COPY, FILL, KERNEL
from wirecost.trace.classify import Classifier
from wirecost.trace.numbers import LIMIT_NS, LONGEST_NS
from wirecost.trace.operations import operation
from wirecost.trace.problems import Problems
from wirecost.trace.recorded import Annotation, Call, Columns, Recorded
from wirecost.trace.source import TraceError

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY),
    ("CUPTI_ACTIVITY_KIND_MEMSET", FILL),
)
_PUSH_POP, _START_END = 59, 60  # NVTX_EVENTS.eventType of ranges
MOST_PROCESSES = 256
"""Of one export that run kernels. A node's ranks are 8 or 16, with split GPUs (MIG) up to 56 or so."""
_LONGEST_VALUE_BYTES = 1 << 24
_ROW_BYTES, _LEAST_ROWS = 4, 1000
"""A row takes a pointer of 2 bytes in its page, a length, a key and a header (SQLite file format, 1.6)."""
_LEAST_TEXT_BYTES = 1 << 20
_STEPS, _STEPS_PER_BYTE, _LEAST_STEPS = 100_000, 4, 50_000_000
"""Of SQLite's virtual machine. A row of 50 bytes takes about 30."""
_COPY_NAMES = {COPY: "Memcpy", FILL: "Memset"}


class Export:
    """An export opened read-only; any fault of the database is a TraceError that names it.

    A database can hold views without end, computed columns and shared pages. So the steps, the rows and the text
    of a query are bounded by what a file of this size can hold.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_file(path, pipes=False, error=TraceError) as file:
            self._size = os.fstat(file.fileno()).st_size
        self._text_left = 0
        self._steps_left = 0
        self._strings: dict[int, str] | None = None
        try:
            self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error as error:
            raise TraceError(f"{path}: {error}") from error
        self._db.text_factory = self._text
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        self._db.set_progress_handler(self._step, _STEPS)

    def _text(self, raw: bytes) -> str:
        self._text_left -= len(raw)
        if self._text_left < 0:
            raise TraceError(
                f"{self._path}: not a sound Nsight Systems export: it gives more text than it can hold"
            )
        return raw.decode("utf-8", "replace")

    def _step(self) -> bool:
        """Returns whether a query has taken more steps than the file's rows can account for, which ends it."""
        self._steps_left -= _STEPS
        return self._steps_left < 0

    def __enter__(self) -> Export:
        # A virtual table has no page.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        try:
            tables = {name for (name,) in self.rows(query)}
        except TraceError:
            self._db.close()
            raise
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
        self._text_left = _LEAST_TEXT_BYTES + 2 * self._size
        self._steps_left = _LEAST_STEPS + _STEPS_PER_BYTE * self._size
        most_rows = _LEAST_ROWS + self._size // _ROW_BYTES
        try:
            for number, row in enumerate(self._db.execute(query, arguments)):
                if number >= most_rows:
                    raise TraceError(
                        f"{self._path}: not a sound Nsight Systems export: it gives more rows than it can hold"
                    )
                yield row
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # The library can't even put a message together that quotes a name with invalid UTF-8.
            reason = "its schema is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise TraceError(f"{self._path}: not a sound Nsight Systems export: {reason}") from error

    def columns(self, table: str) -> set[str]:
        """Returns the names of a table's stored columns; those that are computed don't count."""
        return {row[1] for row in self.rows(f'PRAGMA table_xinfo("{table}")') if row[6] == 0}

    def processes(self) -> list[int | None]:
        """Returns the processes that ran kernels, by their `globalPid` in ascending order: each is a rank's. The
        list is [None] where the export doesn't tell processes apart.

        Raises:
            TraceError: for more than `MOST_PROCESSES`.
        """
        kernels = _TABLES[0][0]
        if "globalPid" not in self.columns(kernels):
            return [None]
        query = f'SELECT DISTINCT globalPid FROM "{kernels}" ORDER BY 1 LIMIT {MOST_PROCESSES + 1}'  # noqa: S608 - constants
        found = [pid for (pid,) in self.rows(query)]
        if len(found) > MOST_PROCESSES:
            raise TraceError(
                f"{self._path}: more than {MOST_PROCESSES} processes ran kernels; expected one node's, a process "
                "for each GPU"
            )
        return found

    def strings(self) -> dict[int, str]:
        """Returns the export's texts by their number."""
        if self._strings is None:
            self._strings = {}
            if "StringIds" in self._present and {"id", "value"} <= self.columns("StringIds"):
                rows = self.rows("SELECT id, value FROM StringIds")
                self._strings = {i: v for i, v in rows if isinstance(v, str)}
        return self._strings

    def recorded(
        self, classifier: Classifier, problems: Problems, process: int | None = None
    ) -> tuple[Recorded, int]:
        """Returns one process of the export (all, without `process`), and how many rows it has.

        Raises:
            TraceError: for a broken database.
        """
        strings = self.strings()
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
                    where = streams.setdefault((str(device)[:80], str(stream)[:80]), len(streams))
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
        query = f'SELECT start, "end", {text}, {key} FROM NVTX_EVENTS WHERE eventType IN (?, ?)'  # noqa: S608
        arguments: tuple[Any, ...] = (_PUSH_POP, _START_END)
        if process is not None and thread != "NULL":
            # A globalTid holds its process in its upper bits (User Guide, "Common SQLite examples").
            query += " AND (typeof(globalTid) <> 'integer' OR globalTid >> 24 << 24 = ?)"
            arguments += (process,)
        for start, end, name, number in self.rows(query, arguments):
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
