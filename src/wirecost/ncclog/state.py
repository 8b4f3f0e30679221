"""The state of a log so far, by process and thread, with the communicator of each connection line.

Except in RCCL, a connection line names no communicator. It belongs to the one that its thread is setting up.
Otherwise it belongs to an existing one of its process in which the process has the line's rank, and which has not
printed this connection before, since a communicator makes each connection once. If several fit, the communicator
is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.ncclog.failures import Concerns
from wirecost.ncclog.grammar import Edge, InitLine

# Above this number, further edges count only if their kind of connection is new, so that memory stays bounded for
# any input: an edge takes about 700 bytes until the verdict. A job of 300 GPUs with every pair connected is below
# it.
MAX_EDGES = 200_000
_MAX_KINDS = 1_000  # further ones, above MAX_EDGES


@dataclass(slots=True, eq=False)
class Membership:
    """One rank's membership in one communicator."""

    process: Process
    comm: str
    rank: int
    nranks: int
    order: int  # index among the communicators of its size in this process, from 0
    device: int
    nvml_device: int | None = None
    bus_id: str | None = None
    comm_id: str | None = None
    split: str | None = None
    nodes: int | None = None
    selected: list[str] = field(default_factory=list)
    edges: set[Edge] = field(default_factory=set)
    known_lines: set[bytes] = field(default_factory=set)  # raw lines understood while it was set up
    complete: bool = False

    def is_on(self, device: str | None) -> bool:
        """Returns whether the rank can be on the GPU of a connection line: an NVML index, or a bus ID before NCCL
        2.18.
        """
        known = {str(self.nvml_device)} if self.nvml_device is not None else set()
        known |= {self.bus_id} if self.bus_id is not None else set()
        return device is None or self.nvml_device is None or device in known


@dataclass(slots=True, eq=False)
class Process:
    """One host:pid, or everything from a source without prefixes (`host` and `pid` are None)."""

    host: str | None
    pid: int | None
    source: int
    host_ends: str = ""  # text that ends with the host, if `host` is unknown
    memberships: list[Membership] = field(default_factory=list)
    latest: dict[tuple[str, int], Membership] = field(default_factory=dict)  # by pointer and rank
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # (ranks, rank) -> how many communicators
    loose_edges: dict[int | None, set[Edge]] = field(default_factory=dict)  # by device of the prefix
    selected: list[str] = field(default_factory=list)
    interfaces: dict[int, str] = field(default_factory=dict)  # NET/Socket's device number -> interface
    addresses: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)
    provider: str | None = None  # libfabric's
    threads: list[Thread] = field(default_factory=list)
    shows_start: bool = False  # Init START lines, from 2.17
    last_warning: str = ""

    def adopt(self, other: Process) -> None:
        """Merges another record of the same process into this one."""
        self.threads += other.threads
        self.memberships += other.memberships
        self.latest |= other.latest
        for device, edges in other.loose_edges.items():
            self.loose_edges.setdefault(device, set()).update(edges)
        for part in (*other.threads, *other.memberships):
            part.process = self

    @property
    def host_identity(self) -> str | None:
        """Returns NCCL's identity of the host: NCCL_HOSTID if set, else the host name."""
        return self.environment.get("NCCL_HOSTID") or self.host


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A failure in NCCL's or PyTorch's words. `process` is None if the line doesn't name one."""

    process: Process | None
    concerns: Concerns
    words: str
    comm: str | None = None  # the communicator's pointer, if the failure names one
    processes_before: int = 0  # number of processes in the log up to the failure

    @property
    def host(self) -> str | None:
        return self.process.host if self.process is not None else None


@dataclass(slots=True, eq=False)
class Thread:
    """One host:pid:tid [device]."""

    process: Process
    device: int | None
    anonymous: bool = False  # several real threads may hide behind a cut-off prefix
    place: object = None  # host, pid, tid and device
    setting_up: Membership | None = None
    pending: set[Edge] = field(default_factory=set)
    known_lines: set[bytes] = field(default_factory=set)  # raw lines that were parsed in the current state
    own_known_lines: set[bytes] = field(
        default_factory=set
    )  # edges outside of any set-up since the last new communicator
    facts_seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.known_lines = self.own_known_lines


class LogState:
    """All information from the lines before it is judged."""

    def __init__(self) -> None:
        self.processes: dict[object, Process] = {}
        self.versions: list[str] = []
        self.no_ib_device = False
        self.no_ib_library = False
        self.gdr_refusals: dict[str, int] = {}  # NCCL's own words -> number of occurrences
        self.p2p_refusals = 0
        self.ib_devices: set[str] = set()
        self.unopened: set[tuple[str | None, str]] = set()  # (host, RDMA device that NCCL couldn't open)
        self.failures: list[Failure] = []
        self.completed_before = False  # a collective had been completed when one failed
        self.unread_network_lines = 0
        self.edges = 0
        self.edges_left_out = 0
        self._late_kinds: set[bytes] = set()

    def process(self, host: str | None, pid: int | None, source: int, host_ends: str = "") -> Process:
        """Returns the process of a line. `host_ends` is a text that ends with its host, if the host is unknown."""
        key: object = ("cut", source) if pid is None else (host, pid, host_ends)
        process = self.processes.get(key)
        if process is None:
            process = self.processes[key] = Process(host, pid, source, host_ends)
        return process

    def is_full_for(self, tail: bytes) -> bool:
        """Returns whether a connection line can be skipped: there are enough edges, and others of its kind."""
        if self.edges < MAX_EDGES:
            return False
        kind = tail[max(tail.find(b" via ") - len(" [receive]"), 0) :]
        if kind not in self._late_kinds and len(self._late_kinds) < _MAX_KINDS:
            self._late_kinds.add(kind)
            return False
        self.edges_left_out += 1
        return True

    def add_edge(self, thread: Thread, edge: Edge) -> None:
        if thread.anonymous:
            home = thread.process.loose_edges.setdefault(None, set())
        elif thread.setting_up is not None:
            home = thread.setting_up.edges
        else:
            home = self._home(thread, edge)
            if home is None:
                return
        before = len(home)
        home.add(edge)
        self.edges += len(home) - before

    def add_init(self, thread: Thread, line: InitLine) -> None:
        process = thread.process
        process.shows_start |= not line.complete
        member = process.latest.get((line.comm, line.rank))
        # A pointer may be reused after its communicator was destroyed; a START line then begins a new one.
        if member is None or (
            not line.complete and (member.nranks, member.comm_id) != (line.nranks, line.comm_id)
        ):
            order = process.sizes.get((line.nranks, line.rank), 0)
            process.sizes[line.nranks, line.rank] = order + 1
            member = Membership(process, line.comm, line.rank, line.nranks, order, line.cuda_device)
            process.memberships.append(member)
            process.latest[line.comm, line.rank] = member
            # Up to NCCL 2.16 only the COMPLETE line exists; it follows its thread's connections.
            if line.complete and not thread.anonymous:
                fits = {e for e in thread.pending if e.local_rank == line.rank and _within(e, line.nranks)}
                member.edges |= fits
                thread.pending -= fits
                member.selected, process.selected = process.selected, []
        member.bus_id = line.bus_id or member.bus_id
        member.nvml_device = member.nvml_device if line.nvml_device is None else line.nvml_device
        member.comm_id = line.comm_id or member.comm_id
        member.split = line.split or member.split
        if not thread.anonymous:
            self._set_aside(thread)
            thread.setting_up = None if line.complete else member
            thread.known_lines = thread.own_known_lines if line.complete else member.known_lines
            if not member.complete:
                # From here on a repeated line can belong to another communicator.
                for other in process.threads:
                    other.own_known_lines.clear()
            member.complete |= line.complete

    def _home(self, thread: Thread, edge: Edge) -> set[Edge] | None:
        """Returns the set for an edge outside of any set-up; None if every candidate communicator has the edge
        already.
        """
        if not thread.process.shows_start:
            return thread.pending  # up to NCCL 2.16 the Init line follows its connections
        fits = self.candidates(thread.process, thread.device, edge)
        lacking = [m for m in fits if edge not in m.edges]
        if len(lacking) == 1:
            return lacking[0].edges
        return None if fits and not lacking else thread.pending

    def finish(self) -> None:
        """Assigns, after the last line, edges without an Init line to their process and then to a matching
        membership.
        """
        self._name_processes()
        for process in self.processes.values():
            for thread in process.threads:
                self._set_aside(thread)
            for device, edges in process.loose_edges.items():
                for edge in list(edges):
                    fits = self.candidates(process, device, edge)
                    if len(fits) == 1:
                        fits[0].edges.add(edge)
                        edges.discard(edge)

    def _name_processes(self) -> None:
        """Assigns text that a process printed into another process's line to its process, if other
        lines name it.
        """
        by_pid: dict[int | None, list[Process]] = {}
        for process in self.processes.values():
            if process.host is not None:
                by_pid.setdefault(process.pid, []).append(process)
        for key, process in list(self.processes.items()):
            named = [p for p in by_pid.get(process.pid, ()) if p.host and process.host_ends.endswith(p.host)]
            if process.host is None and process.host_ends and len(named) == 1:
                named[0].adopt(process)
                del self.processes[key]

    @staticmethod
    def candidates(process: Process, device: int | None, edge: Edge) -> list[Membership]:
        """Returns the memberships of `process` that an edge can belong to."""
        if edge.comm is not None:
            named = [m for m in process.memberships if m.comm == edge.comm and m.rank == edge.local_rank]
            return named[-1:]
        return [
            m
            for m in process.memberships
            if m.rank == edge.local_rank and _within(edge, m.nranks) and device in (None, m.device)
        ]

    @staticmethod
    def _set_aside(thread: Thread) -> None:
        if thread.pending:
            thread.process.loose_edges.setdefault(thread.device, set()).update(thread.pending)
            thread.pending.clear()


def environment_of(state: LogState, name: str) -> set[str]:
    """Returns the values that the processes of a log have for an environment variable."""
    return {p.environment[name] for p in state.processes.values() if name in p.environment}


def _within(edge: Edge, nranks: int) -> bool:
    return edge.sender < nranks and edge.receiver < nranks
