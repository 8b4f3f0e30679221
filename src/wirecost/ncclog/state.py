"""What a log said so far, by process and thread, and which communicator a connection line belongs to.

A connection line names no communicator (RCCL's excepted). It belongs to the one that its thread is setting up,
else to one of its process that exists by then, in which the process has the line's own rank, and which has not
printed this connection before: a communicator makes each once. Where several fit, which one isn't known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.ncclog.failures import Concerns
from wirecost.ncclog.grammar import Edge, InitLine

# Above this, further edges count only if their kind of connection is new, so that memory stays bounded whatever is
# fed in: an edge takes some 700 bytes until the verdict is there. A job of 300 GPUs with every pair connected is
# below it.
MAX_EDGES = 200_000
_MAX_KINDS = 1_000  # further ones, above MAX_EDGES


@dataclass(slots=True, eq=False)
class Membership:
    """One rank's part in one communicator."""

    process: Process
    comm: str
    rank: int
    nranks: int
    order: int  # how many-th of its size in this process, from 0
    device: int
    nvml_device: int | None = None
    bus_id: str | None = None
    comm_id: str | None = None
    split: str | None = None
    nodes: int | None = None
    selected: list[str] = field(default_factory=list)
    edges: set[Edge] = field(default_factory=set)
    seen: set[bytes] = field(default_factory=set)  # raw lines understood while it was set up
    complete: bool = False

    def is_on(self, device: str | None) -> bool:
        """Whether the rank may be on the GPU of a connection line: an index of NVML's, or a bus id before 2.18."""
        known = {str(self.nvml_device)} if self.nvml_device is not None else set()
        known |= {self.bus_id} if self.bus_id is not None else set()
        return device is None or self.nvml_device is None or device in known


@dataclass(slots=True, eq=False)
class Process:
    """One host:pid, or everything of a source whose prefixes were cut off (`host` and `pid` are None)."""

    host: str | None
    pid: int | None
    source: int
    host_ends: str = ""  # text whose end is the host, where `host` isn't known
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
        """Takes over everything that another record of the same process holds."""
        self.threads += other.threads
        self.memberships += other.memberships
        self.latest |= other.latest
        for device, edges in other.loose_edges.items():
            self.loose_edges.setdefault(device, set()).update(edges)
        for part in (*other.threads, *other.memberships):
            part.process = self

    @property
    def host_identity(self) -> str | None:
        """What NCCL takes for the host: NCCL_HOSTID where it is set, else the host name."""
        return self.environment.get("NCCL_HOSTID") or self.host


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A failure with NCCL's or PyTorch's own words. `process` is None where the line doesn't name one."""

    process: Process | None
    concerns: Concerns
    words: str
    comm: str | None = None  # the communicator's pointer, where the failure is its own
    processes_before: int = 0  # how many processes the log had shown by then

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
    seen: set[bytes] = field(default_factory=set)  # raw lines already understood, in the present state
    own_seen: set[bytes] = field(
        default_factory=set
    )  # those outside of any set-up, since the last new communicator
    facts_seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen = self.own_seen


class LogState:
    """Everything gathered from the lines, not yet judged."""

    def __init__(self) -> None:
        self.processes: dict[object, Process] = {}
        self.versions: list[str] = []
        self.no_ib_device = False
        self.no_ib_library = False
        self.gdr_refusals: dict[str, int] = {}  # NCCL's own words -> how often
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
        """The process of a line. `host_ends` is text whose end is its host, where that isn't known."""
        key: object = ("cut", source) if pid is None else (host, pid, host_ends)
        found = self.processes.get(key)
        if found is None:
            found = self.processes[key] = Process(host, pid, source, host_ends)
        return found

    def is_full_for(self, tail: bytes) -> bool:
        """Whether a connection line needs no look any more: there are enough edges, and others of its kind."""
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
        # A pointer is used again after a communicator was destroyed; its START line then shows a new one.
        if member is None or (
            not line.complete and (member.nranks, member.comm_id) != (line.nranks, line.comm_id)
        ):
            order = process.sizes.get((line.nranks, line.rank), 0)
            process.sizes[line.nranks, line.rank] = order + 1
            member = Membership(process, line.comm, line.rank, line.nranks, order, line.cuda_device)
            process.memberships.append(member)
            process.latest[line.comm, line.rank] = member
            # Up to 2.16 only the COMPLETE line exists and closes what its thread printed before.
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
            thread.seen = thread.own_seen if line.complete else member.seen
            if not member.complete:
                # From here on a line that was seen before can mean another communicator.
                for other in process.threads:
                    other.own_seen.clear()
            member.complete |= line.complete

    def _home(self, thread: Thread, edge: Edge) -> set[Edge] | None:
        """Where an edge outside of any set-up goes; None if every communicator in question has it already."""
        if not thread.process.shows_start:
            return thread.pending  # up to 2.16 the Init line follows its connections
        fits = self.candidates(thread.process, thread.device, edge)
        lacking = [m for m in fits if edge not in m.edges]
        if len(lacking) == 1:
            return lacking[0].edges
        return None if fits and not lacking else thread.pending

    def finish(self) -> None:
        """After the last line: what no Init line claimed goes to the process, then to the membership that fits."""
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
        """Gives what a process printed into another one's line to it, where other lines name it."""
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
        """The memberships of `process` that an edge can belong to."""
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
