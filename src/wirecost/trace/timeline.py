"""A rank's time line in the size that a page can hold: exact sums over cells, and the longest device events."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from wirecost.breakdown.intervals import Intervals, intersect, measure_before, subtract, union
from wirecost.trace.categories import KERNEL
from wirecost.trace.recorded import Columns

Int64 = npt.NDArray[np.int64]

COMPUTE, COMMUNICATION, MEMORY = 0, 1, 2  # classes of device events
CATEGORIES = ("compute", "overlapped", "exposed", "memory")


class Events(msgspec.Struct):
    """The longest device events of a rank in order of start: int64 columns of equal length, absolute ns.

    `name` indexes `names`, `stream` indexes `streams` (texts such as `0/7`: device and stream), `kind` is
    COMPUTE, COMMUNICATION or MEMORY. `total` and `total_ns` count all device events, kept or not.
    """

    start_ns: Int64
    end_ns: Int64
    name: Int64
    stream: Int64
    kind: Int64
    names: list[str]
    streams: list[str]
    total: int
    total_ns: int

    def thinned(self, limit: int) -> Events:
        """Returns the `limit` longest of these events."""
        if len(self.start_ns) <= limit:
            return self
        rows = np.sort(np.argpartition(self.start_ns - self.end_ns, limit)[:limit])
        names, name = np.unique(self.name[rows], return_inverse=True)
        return msgspec.structs.replace(
            self,
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            name=name.astype(np.int64).reshape(-1),
            stream=self.stream[rows],
            kind=self.kind[rows],
            names=[self.names[n] for n in names],
        )


class Timeline(msgspec.Struct):
    """The time line of one rank, cut into cells; int64 arrays, absolute ns.

    Cell i is [edges_ns[i], edges_ns[i + 1]). The four other arrays hold the time of each category in it; the rest
    is idle. A stretch of one category that is at least `cell_ns` long is a cell of its own; shorter ones share a
    cell. Sums over complete cells are exact. If `cell_ns` is 0, every stretch is a cell of its own.
    """

    edges_ns: Int64
    compute_ns: Int64
    overlapped_ns: Int64
    exposed_ns: Int64
    memory_ns: Int64
    cell_ns: int
    events: Events

    @classmethod
    def of(
        cls,
        start_ns: int,
        end_ns: int,
        compute: Intervals,
        comm: Intervals,
        memory: Intervals,
        *,
        columns: Columns,
        base_ns: int,
        limit: int,
    ) -> Timeline:
        """Cuts [start_ns, end_ns) into at most `limit` cells and keeps the `limit` longest events.

        `compute`, `comm` and `memory` are merged interval sets inside the window; `base_ns` is added to all times.
        """
        sets = {
            "compute": subtract(compute, comm),
            "overlapped": intersect(compute, comm),
            "exposed": subtract(comm, compute),
            "memory": subtract(memory, union(compute, comm)),
        }
        edges = np.unique(np.concatenate([[start_ns, end_ns], *(s.reshape(-1) for s in sets.values())]))
        edges = edges[(edges >= start_ns) & (edges <= end_ns)]
        sums = {f"{name}_ns": np.diff(measure_before(stretches, edges)) for name, stretches in sets.items()}
        return cls(edges_ns=edges + base_ns, **sums, cell_ns=0, events=_events(columns, base_ns)).thinned(limit)

    @property
    def sums_ns(self) -> Int64:
        """The time that each category takes of each cell: shape (cells, 4), in the order of CATEGORIES."""
        return np.stack([self.compute_ns, self.overlapped_ns, self.exposed_ns, self.memory_ns], axis=1)

    def thinned(self, limit: int) -> Timeline:
        """Returns the same time line in at most `limit` cells (at least 4), with at most as many events."""
        keep, cell = _kept(self.edges_ns, max(limit, 4))
        if cell == 0:
            return msgspec.structs.replace(self, events=self.events.thinned(limit))
        firsts = np.flatnonzero(keep)
        return Timeline(
            edges_ns=self.edges_ns[firsts],
            **{f"{name}_ns": np.add.reduceat(getattr(self, f"{name}_ns"), firsts[:-1]) for name in CATEGORIES},
            cell_ns=max(cell, self.cell_ns),
            events=self.events.thinned(limit),
        )


def _kept(edges: Int64, limit: int) -> tuple[npt.NDArray[np.bool_], int]:
    """Returns (which edges stay, the shortest stretch that is a cell of its own; 0 where all stay)."""
    keep = np.ones(len(edges), dtype=bool)
    if len(edges) <= limit + 1:
        return keep, 0
    length, span = np.diff(edges), int(edges[-1] - edges[0])
    cell = max(1, span // (4 * limit))
    while True:
        # Of the edges between short stretches only the first in each cell of a grid stays. There are at most
        # span / cell long stretches and as many cells of the grid, so the loop ends.
        long = length >= cell
        grid = (edges - edges[0]) // cell
        keep[1:-1] = long[1:] | long[:-1] | (grid[1:-1] != grid[:-2])
        if int(keep.sum()) <= limit + 1:
            return keep, cell
        cell *= 2


def _events(columns: Columns, base_ns: int) -> Events:
    length = columns.end_ns - columns.start_ns
    rows = np.flatnonzero(length > 0)
    rows = rows[np.lexsort((columns.end_ns[rows], columns.start_ns[rows]))]
    kind = np.where(columns.comm[rows], COMMUNICATION, np.where(columns.kind[rows] == KERNEL, COMPUTE, MEMORY))
    names, name = np.unique(columns.name[rows], return_inverse=True)
    streams, stream = np.unique(columns.stream[rows], return_inverse=True)
    return Events(
        start_ns=columns.start_ns[rows] + base_ns,
        end_ns=columns.end_ns[rows] + base_ns,
        name=name.astype(np.int64).reshape(-1),
        stream=stream.astype(np.int64).reshape(-1),
        kind=kind.astype(np.int64),
        names=[columns.names[n] for n in names],
        streams=["/".join(columns.streams[s]) for s in streams],
        total=len(rows),
        total_ns=int(length[rows].sum()),
    )
