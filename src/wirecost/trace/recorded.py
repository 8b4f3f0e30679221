"""The recorded data of one file: columns of device work, host calls, annotations and descriptions of
communication.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.trace.operations import UNKNOWN

UNKNOWN_GROUP = "unknown"
NONE = -1  # in integer columns: not known


@dataclass(slots=True)
class Call:
    """The description of a communication in its event; None is unknown.

    `group` is the process group's name, `members` its ranks as the trace writes them. `peers` are the (source,
    destination) ranks of the messages of a send, a receive or several coalesced ones, in order. `waits` marks a
    description of the wait for a call instead of the call.
    """

    op: str = UNKNOWN
    group: str = UNKNOWN_GROUP
    members: str = ""
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    sequence: int | None = None
    op_source: str = "name"
    waits: bool = False
    peers: tuple[tuple[int, int], ...] = ()


Int64 = npt.NDArray[np.int64]


def _no_rows() -> Int64:
    return np.empty(0, dtype=np.int64)


def among(values: npt.NDArray[np.integer], ids: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Returns whether each of `values` is one of the sorted `ids`; for many ids of any range faster, and in less
    memory, than numpy's `isin`."""
    if len(ids) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    return ids[np.minimum(np.searchsorted(ids, values), len(ids) - 1)] == values


@dataclass
class Columns:
    """Device events of one file: int64 nanoseconds, without the base time.

    `correlation` and `external` join an event to the host call that launched it and to the operator around that
    call. `shape` distinguishes launches of one kernel with different grids. `why` indexes `reasons`.
    """

    start_ns: Int64
    end_ns: Int64
    kind: npt.NDArray[np.int8]
    name: Int64  # index into `names`
    stream: Int64  # index into `streams`
    comm: npt.NDArray[np.bool_]
    names: list[str]
    streams: list[tuple[str, str]]  # (device, stream)
    calls: dict[int, Call]  # by row, for communication
    correlation: Int64 = field(default_factory=_no_rows)
    external: Int64 = field(default_factory=_no_rows)
    shape: Int64 = field(default_factory=_no_rows)
    why: Int64 = field(default_factory=_no_rows)
    reasons: list[str] = field(default_factory=list)
    operators: dict[int, str] = field(default_factory=dict)  # by row: the communicating operator around it

    def __post_init__(self) -> None:
        for name in ("correlation", "external", "shape", "why"):
            if len(getattr(self, name)) != len(self.start_ns):
                setattr(self, name, np.full(len(self.start_ns), NONE, dtype=np.int64))


@dataclass
class Launches:
    """Host calls of the device's runtime in order of their start: int64 columns of equal length. `thread` indexes
    `threads`, `name` indexes `names`."""

    start_ns: Int64 = field(default_factory=_no_rows)
    end_ns: Int64 = field(default_factory=_no_rows)
    correlation: Int64 = field(default_factory=_no_rows)
    name: Int64 = field(default_factory=_no_rows)
    thread: Int64 = field(default_factory=_no_rows)
    names: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start_ns)

    def of(self, correlation: Int64) -> Int64:
        """Returns the row of the host call of each correlation id; -1 if there is none or if several processes
        have it.

        Of nested calls with one id the outer one counts.
        """
        row_of = np.full(len(correlation), NONE, dtype=np.int64)
        rows = np.flatnonzero(self.correlation >= 0)
        if len(rows) == 0 or len(correlation) == 0:
            return row_of
        order = rows[np.argsort(self.correlation[rows], kind="stable")]
        ids = self.correlation[order]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = ids[1:] != ids[:-1]
        processes: dict[str, int] = {}
        process = np.array([processes.setdefault(pid, len(processes)) for pid, _ in self.threads], dtype=np.int64)
        owner = process[self.thread[order]]
        unclear = set(ids[1:][(ids[1:] == ids[:-1]) & (owner[1:] != owner[:-1])].tolist())
        ids, order = ids[first], order[first]
        at = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
        hit = (ids[at] == correlation) & (correlation >= 0)
        if unclear:
            hit &= ~np.isin(correlation, np.array(sorted(unclear), dtype=np.int64))
        row_of[hit] = order[at[hit]]
        return row_of


@dataclass
class HostRange:
    """A communication operator or annotation of the host; `call` is the description in its arguments."""

    name: str
    start_ns: int
    end_ns: int
    thread: int  # index into the launches' threads
    external: int
    annotation: bool
    call: Call | None = None
    waits: bool = False  # it waits for a collective that was launched before, and launches none
    lasting: bool = False  # it lasts until the communication ends, so that other work may be launched inside it


@dataclass
class Annotation:
    name: str
    start_ns: int
    end_ns: int
    stream: int  # index into the streams; -1 on the CPU
    thread: int = NONE  # on the CPU: index into the launches' threads
    step: bool = False  # marked as a step by the profiler itself


@dataclass
class Recorded:
    """All data of one file that the answer is computed from.

    `launch` is the row of `launches` of each device event, -1 if it isn't recorded.
    """

    device: Columns
    gpu_annotations: list[Annotation] = field(default_factory=list)
    cpu_annotations: list[Annotation] = field(default_factory=list)
    host_ranges: list[HostRange] = field(default_factory=list)
    launches: Launches = field(default_factory=Launches)
    record_start_ns: int | None = None
    record_end_ns: int | None = None
    cpu_ops: list[tuple[int, int]] = field(default_factory=list)  # when a thread of a CPU run computes
    metadata: dict[str, Any] = field(default_factory=dict)
    sub_microsecond: bool = True
    names_only: bool = False  # of communication nothing but kernels' names is recorded

    @cached_property
    def launch(self) -> Int64:
        return self.launches.of(self.device.correlation)

    @cached_property
    def launch_ns(self) -> Int64:
        """The time at which the host began to launch each device event; -1 is unknown."""
        rows = self.launch
        if len(self.launches) == 0:
            return rows
        return np.where(rows >= 0, self.launches.start_ns[rows], NONE)
