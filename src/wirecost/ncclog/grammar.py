"""The lines of an NCCL or RCCL log that matter, one regular expression each.

The forms are those of NCCL's own format strings from 2.4 to 2.31 (src/transport/*.cc, src/init.cc) and RCCL's:
`Ring NN :` before 2.7, `Channel NN :` to 2.11, `Channel NN/c :` from 2.12; NET lines without brackets in 2.4;
a bus id in the bracket before 2.18 and a device index after; `/GDRDMA(PCI)` from 2.26; `/flush=` on receiving
ends from 2.31; RCCL's lines end in
` comm 0x... nRanks NN`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Edge(NamedTuple):
    """One `Channel a -> b via ...` line without its channel number.

    `side` is "send" or "receive" on NET lines, which speak of that end alone; None where whoever copied the line
    left the word out. `gdr` is None where it doesn't apply or the line may have been cut.
    """

    sender: int
    receiver: int
    sender_device: str | None
    receiver_device: str | None
    connection: int  # 0: collectives, 1: send and receive
    side: str | None
    kind: str  # NET, COLLNET, P2P or SHM
    network: str  # the plugin's name, or what follows P2P/ or SHM/
    net_device: int | None
    gdr: bool | None
    comm: str | None  # RCCL only
    nranks: int | None  # RCCL only

    @property
    def local_rank(self) -> int:
        """The rank that printed the line."""
        return self.receiver if self.side == "receive" else self.sender


class InitLine(NamedTuple):
    """`comm 0x... rank r nranks n ... Init START|COMPLETE`."""

    comm: str
    rank: int
    nranks: int
    cuda_device: int
    nvml_device: int | None
    bus_id: str | None
    comm_id: str | None
    split: str | None  # parent, split count and color, where the line has no commId
    complete: bool


class NodesLine(NamedTuple):
    """`comm 0x... rank r nRanks n nNodes k localRanks l ...`: how many hosts NCCL itself sees (2.19 and later)."""

    comm: str
    rank: int
    nodes: int


class Prefix(NamedTuple):
    """`host:pid:tid [device]`. `host` is None where whoever pasted the log blanked it."""

    host: str | None
    pid: int
    tid: int
    device: int | None


_EDGE = re.compile(
    rb"(?:Channel|Ring) \d{1,9}(?:/(\d{1,9}))? : (\d{1,9})(?:\[(-?[0-9a-fA-F]{1,16})\])? -> "
    rb"(\d{1,9})(?:\[(-?[0-9a-fA-F]{1,16})\])?(?: \[(send|receive)\])? via "
)
_COLLNET = re.compile(rb"Coll(?:Net)? \d{1,9}(?:/(\d{1,9}))? : (\d{1,9}) \[(send|receive)\] via (?=COLLNET/)")
# Behind the word "via". A plugin's name may hold spaces and punctuation, but nothing that a wrapper is made of.
_NET = re.compile(
    rb"(NET|COLLNET)/([^/\s\"'\\<>|\x00-\x1f][^/\"'\\<>|\x00-\x1f]{0,63})/(\d{1,9})(?:\(\d{1,9}\))?"
    rb"((?:/[A-Za-z][A-Za-z0-9=_.]*(?:\([A-Za-z0-9]*\)?)?)*/?)"
)
_INSIDE = re.compile(
    rb"P2P/(direct pointer|indirect|[A-Za-z][A-Za-z0-9_]*)(?:/\d+\[-?[0-9a-f]+\])?(?:/[A-Za-z]+)*"
    rb"|SHM/([A-Za-z][A-Za-z0-9_]*)(?:/[A-Za-z]+)*|(direct shared memory)"
)
# What stays certain of those where the end of the line is lost.
_INSIDE_CUT = re.compile(rb"P2P/(IPC|CUMEM|MNNVL|direct pointer|indirect)|SHM/(direct|CE)|(direct shared memory)")
_RCCL_COMM = re.compile(rb" comm (0x[0-9a-f]{1,16}) nRanks (\d{1,9})")
# What can follow a whole message: nothing, space, or what a wrapper begins with. Anything else is glued to it.
_ENDS_WELL = frozenset(b" \t\r\n\"'\\<,;|}`\x1b")
_NAMES_NETWORK = re.compile(rb"via (?:NET|COLLNET|NE?$|COL*N?E?$)|\d\]? \[[sr]|Coll(?:Net)? \d+")
_INIT = re.compile(
    rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nranks (\d{1,9}) cudaDev (\d{1,6})"
    rb"(?: nvmlDev (-?\d{1,6}))?(?: busId ([0-9a-f]+))?(.*?)"
    rb"- ?Init (START|COMPLETE)"
)
_NODES = re.compile(rb"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nRanks \d{1,9} nNodes (\d{1,9})")
_ABORT = re.compile(rb"comm (0x[0-9a-f]+) rank (\d{1,9}) nranks \d+ .{0,200}- Abort COMPLETE")
_COMM_ID = re.compile(rb" commId (0x[0-9a-f]+)")
_SPLIT = re.compile(rb" parent (0x[0-9a-f]+)(?: (?:split|child)Count (\d+))? color (-?\d+)")
# A host name holds no colon and nothing that a wrapper is made of, so that whatever a launcher puts before it
# ("[1,4]<stdout>:", "[rank0]:", '{"log":"') falls away.
_PREFIX = re.compile(
    rb"([A-Za-z0-9_.\-\x80-\xff]{0,255}):(\d{1,10}):(\d{1,10})(?:\s+\[(-?\d{1,6})\])?(?:\s+\S+:\d+)?"
    rb"(?: \(\S+\))?\s*$"
)
_LONGEST_PREFIX = 600
_PREFIXED = re.compile(
    rb"([A-Za-z0-9_.\-\x80-\xff]{1,64}):\d{1,10}:\d{1,10} \[-?\d{1,6}\] (?:\S{1,200}:\d+ (?:\(\S{1,99}\) )?)?"
    rb"NCCL (?:INFO|WARN) "
)


def text(raw: bytes) -> str:
    """Bytes of a log as text that is safe to show: nothing unprintable survives."""
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "replace"))


def parse_edge(tail: bytes, *, cut: bool = False) -> tuple[Edge, int] | None:
    """The edge of a `Channel`, `Ring` or `CollNet` line and where its text ends, or None where it is incomplete or
    something else. What follows that end isn't looked at.

    `tail` starts at the word `Channel`. `cut` says that the end of the line may be missing: an absent `/GDRDMA`
    then proves nothing. The same goes for a line that another one is glued to.
    """
    if tail.startswith(b"Coll"):
        if (m := _COLLNET.match(tail)) is None:
            return None
        conn, sender, side = m.groups()
        receiver, sender_device, receiver_device = sender, None, None
    else:
        if (m := _EDGE.match(tail)) is None:
            return None
        conn, sender, sender_device, receiver, receiver_device, side = m.groups()
    medium = _medium(tail[m.end() : m.end() + _LONGEST_MEDIUM], cut)
    if medium is None:
        return None
    kind, network, net_device, gdr, length, comm, nranks = medium
    edge = Edge(
        int(sender),
        int(receiver),
        sender_device.decode() if sender_device else None,
        receiver_device.decode() if receiver_device else None,
        int(conn or 0),
        side.decode() if side else None,
        kind,
        network,
        net_device,
        gdr,
        comm,
        nranks,
    )
    return edge, m.end() + length


def names_network(tail: bytes) -> bool:
    """Whether a connection line that can't be read is one of a network all the same: it names one, or one end."""
    return _NAMES_NETWORK.search(tail) is not None


_LONGEST_MEDIUM = 256  # characters, RCCL's communicator included
_Medium = tuple[str, str, int | None, bool | None, int, str | None, int | None]


@lru_cache(maxsize=4096)  # a job of any size has few of them
def _medium(via: bytes, cut: bool) -> _Medium | None:
    """(kind, network, device of the network, GPUDirect, length of the text, RCCL's communicator and its number of
    ranks) behind the word `via`, or None for anything else."""
    net_device, gdr = None, None
    if (net := _NET.match(via)) is not None:
        end, attributes = net.end(), net[4].split(b"/")[1:]
        kind, network, net_device = net[1].decode(), text(net[2]), int(net[3])
        whole = not cut and (end == len(via) or via[end] in _ENDS_WELL) and not _torn(attributes)
        gdr = True if any(a.startswith(b"GDRDMA") for a in attributes) else False if whole else None
    elif (inside := (_INSIDE_CUT if cut else _INSIDE).match(via)) is not None:
        end = inside.end()
        kind = "P2P" if inside[1] else "SHM"
        network = text(via[4:end] if via[3:4] == b"/" else b"direct")
    else:
        return None
    comm = _RCCL_COMM.match(via, end)
    if comm is None:
        return kind, network, net_device, gdr, end, None, None
    return kind, network, net_device, gdr, comm.end(), comm[1].decode(), int(comm[2])


def _torn(attributes: list[bytes]) -> bool:
    """Whether the last attribute of a network may be the beginning of GDRDMA."""
    return bool(attributes) and b"GDRDMA".startswith(attributes[-1])


def parse_init(tail: bytes) -> InitLine | None:
    m = _INIT.search(tail)
    if m is None:
        return None
    comm_id, split = _COMM_ID.search(m[7]), _SPLIT.search(m[7])
    return InitLine(
        comm=m[1].decode(),
        rank=int(m[2]),
        nranks=int(m[3]),
        cuda_device=int(m[4]),
        nvml_device=int(m[5]) if m[5] else None,
        bus_id=m[6].decode() if m[6] else None,
        comm_id=comm_id[1].decode() if comm_id else None,
        split=b"/".join(g or b"" for g in split.groups()).decode() if split else None,
        complete=m[8] == b"COMPLETE",
    )


def parse_nodes(tail: bytes) -> NodesLine | None:
    m = _NODES.search(tail)
    return NodesLine(m[1].decode(), int(m[2]), int(m[3])) if m else None


def parse_abort(tail: bytes) -> tuple[str, int] | None:
    """The communicator's pointer and the rank of a line that says that it was aborted, or None."""
    m = _ABORT.search(tail)
    return (m[1].decode(), int(m[2])) if m else None


def parse_prefix(head: bytes) -> Prefix | None:
    """`host:pid:tid [device]` at the end of `head`, or None where the prefix was cut off."""
    m = _PREFIX.search(head[-_LONGEST_PREFIX:])
    if m is None:
        return None
    return Prefix(text(m[1]) or None, int(m[2]), int(m[3]), int(m[4]) if m[4] else None)


class Piece(NamedTuple):
    """One message of a line that may hold several.

    `torn` says that the message lost its end to the next one. Where the log doesn't name the next one's host
    elsewhere, `glued` is how many last bytes of the text may be its name; `host_ends` is then that piece's: bytes
    whose end is its host.
    """

    text: bytes
    torn: bool = False
    glued: int = 0
    host_ends: bytes = b""


def messages(line: bytes, hosts: set[bytes], lengths: set[int]) -> list[Piece]:
    """The messages of a line that may hold several.

    A host name glued to the message before it ("NET/IB/0beta") is found where it is among the `hosts` known
    (`lengths` are theirs). Messages that stand apart have lost nothing.
    """
    starts: list[tuple[int, bytes]] = []
    for m in _PREFIXED.finditer(line):
        start, unknown = m.start(1), b""
        if starts and not _stands_apart(line, start):
            known = max((n for n in lengths if m[1][-n:] in hosts), default=0)
            start, unknown = m.end(1) - known, b"" if known else m[1]
        starts.append((start, unknown))
    if len(starts) < 2:
        return [Piece(line)]
    pieces = []
    for k, (start, unknown) in enumerate(starts):
        end, glued = starts[k + 1] if k + 1 < len(starts) else (len(line), b"")
        torn = end < len(line) and (bool(glued) or not _stands_apart(line, end))
        pieces.append(Piece(line[start if k else 0 : end], torn, len(glued), unknown))
    return pieces


def _stands_apart(line: bytes, at: int) -> bool:
    return at == 0 or line[at - 1 : at].isspace() or line[at - 1] in b"|\"'>,;)]}"
