"""The dependency graph of a job: for each rank and step the host's calls and the device's work, with what each
waits for.

Nodes of a step are columns in an order that respects every dependency: host calls at their end, device work at its
start (and after its launch). A node's kind says what starts it:

- `HOST`: `gap` after the call before it on the host; it waits while the stream that it launches on is full.
- `WORK`: after the work before it on its stream (plus `gap`), and after its launch (plus `delay`).
- `JOIN`: as WORK, and it ends with the same collective on all other ranks.
- `SYNC`: the host goes on when the device work has ended that it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.trace.clocks import ClockOffset
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.whatif.host_calls import HostCalls
from wirecost.whatif.launched import Launched
from wirecost.whatif.reading import RankRecord
from wirecost.whatif.stream_waits import StreamWaits

HOST, WORK, JOIN, SYNC = 0, 1, 2, 3
NONE = -1
WHOLE_DEVICE = 2
"""`stream` of a SYNC node that waits for all streams."""


@dataclass
class Collective:
    """One communication over the ranks that show it.

    `transfer_ns` is from the last rank's start to the end; `known` says that all ranks of the group are there, so
    that waiting and transfer are told apart.
    """

    op: str
    group: str
    size: int
    bytes: int | None
    members: int
    transfer_ns: int
    known: bool
    position: tuple[int, int] = (0, 0)
    spans: str = ""
    waited_ns: int = 0  # where `known` is False: what of `transfer_ns` may be waiting for other ranks


@dataclass
class Step:
    """One step of one rank; lists of equal length in the order in which nodes are replayed.

    `ref` is for HOST the position of the call before it in this step, for WORK and JOIN that of the launch (NONE:
    the last host call of the step before). `waits` holds for a node the (steps back, position) of the device work
    that it waits for.
    """

    kind: list[int]
    ref: list[int]
    stream: list[int]
    gap: list[float]
    delay: list[float]
    length: list[float]
    join: list[int]
    row: list[int]
    waits: dict[int, list[tuple[int, int]]]
    first: int  # the node at which the step begins on the device
    last_host: int


@dataclass
class RankGraph:
    """One rank's steps, and what was inferred of it."""

    rank: int
    steps: list[Step]
    streams: int
    waits: StreamWaits
    unlaunched: int
    unexplained_ns: int
    record: RankRecord
    host: HostCalls
    work: Launched
    main: int
    queue: int  # commands that a stream's queue takes


@dataclass
class Graph:
    """All ranks' steps and the collectives that join them. `recorded_ns` is the recorded length of each step but
    the first, the mean over ranks; `collectives[i]` is the collective of join number i."""

    ranks: list[RankGraph]
    collectives: list[Collective]
    clocks: list[ClockOffset]
    recorded_ns: list[float]
    unmatched: int
    step_count: int
    begins_ns: list[float] = field(default_factory=list)  # when each rank's host begins, from the first one
    diagnostics: DiagnosticCounts = field(default_factory=DiagnosticCounts)
    open_end: bool = False  # whether later steps were left out, which not all ranks have whole
