"""The grammar of relevant lines of an NCCL or RCCL log, with one regular expression each.

The forms are those of NCCL's own format strings from 2.4 to 2.31 (src/transport/*.cc, src/init.cc) and RCCL's:
`Ring NN :` before 2.7, `Channel NN :` to 2.11, `Channel NN/c :` from 2.12; NET lines without brackets in 2.4; a
bus id in the bracket before 2.18 and a device index after; `/GDRDMA(PCI)` from 2.26; `/flush=` on receiving ends
from 2.31; RCCL's lines end in ` comm 0x... nRanks NN`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Edge(NamedTuple):
    """One `Channel a -> b via ...` line without its channel number.

    `side` is "send" or "receive" on NET lines, which describe only that end; None if the word was lost in copying.
    `gdr` is None if it doesn't apply or the line may be truncated.
    """

    sender: int
    receiver: int
    sender_device: str | None
    receiver_device: str | None
    connection: int  # 0: collectives, 1: send and receive
    side: str | None
    kind: str  # NET, COLLNET, P2P or SHM
    network: str  # the plugin's name, or the text after P2P/ or SHM/
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
    split: str | None  # parent, split count and color, if the line has no commId
    complete: bool


class NodesLine(NamedTuple):
    """`comm 0x... rank r nRanks n nNodes k localRanks l ...`: the number of hosts that NCCL sees
    (2.19 and later).
    """

    comm: str
    rank: int
    nodes: int


class Prefix(NamedTuple):
    """`host:pid:tid [device]`. `host` is None if it was removed from a pasted log."""

    host: str | None
    pid: int
    tid: int
    device: int | None


_EDGE = re.compile(
    rb"(?:Channel|Ring) \d{1,9}(?:/(\d{1,9}))? : (\d{1,9})(?:\[(-?[0-9a-fA-F]{1,16})\])? -> "
    rb"(\d{1,9})(?:\[(-?[0-9a-fA-F]{1,16})\])?(?: \[(send|receive)\])? via "
)
_COLLNET = re.compile(rb"Coll(?:Net)? \d{1,9}(?:/(\d{1,9}))? : (\d{1,9}) \[(send|receive)\] via (?=COLLNET/)")
# The text behind the word "via". A plugin's name may contain spaces and punctuation, but no wrapper's characters.
_NET = re.compile(
    rb"(NET|COLLNET)/([^/\s\"'\\<>|\x00-\x1f][^/\"'\\<>|\x00-\x1f]{0,63})/(\d{1,9})(?:\(\d{1,9}\))?"
    rb"((?:/[A-Za-z][A-Za-z0-9=_.]*(?:\([A-Za-z0-9]*\)?)?)*/?)"
)
_INSIDE = re.compile(
    rb"P2P/(direct pointer|indirect|[A-Za-z][A-Za-z0-9_]*)(?:/\d+\[-?[0-9a-f]+\])?(?:/[A-Za-z]+)*"
    rb"|SHM/([A-Za-z][A-Za-z0-9_]*)(?:/[A-Za-z]+)*|(direct shared memory)"
)
# The part of it that stays certain if the end of the line is lost.
_INSIDE_CUT = re.compile(rb"P2P/(IPC|CUMEM|MNNVL|direct pointer|indirect)|SHM/(direct|CE)|(direct shared memory)")
_RCCL_COMM = re.compile(rb" comm (0x[0-9a-f]{1,16}) nRanks (\d{1,9})")
# A complete message is followed by nothing, a space, or the start of a wrapper. Anything else was merged with it.
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
# A host name contains no colon and no wrapper's characters, so that a launcher's prefix ("[1,4]<stdout>:",
# "[rank0]:", '{"log":"') isn't part of it.
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
    """Returns bytes of a log as printable text that is safe to show."""
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "replace"))


def parse_edge(tail: bytes, *, cut: bool = False) -> tuple[Edge, int] | None:
    """Returns the edge of a `Channel`, `Ring` or `CollNet` line and the end of its text; None for an incomplete or
    other line. The text behind that end is ignored.

    Args:
        tail: the line from the word `Channel` on.
        cut: whether the end of the line may be missing. An absent `/GDRDMA` then proves nothing, as in a line that
            is merged with another one.
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
    """Returns whether an unreadable connection line is one of a network: it names a network or one end."""
    return _NAMES_NETWORK.search(tail) is not None


_LONGEST_MEDIUM = 256  # characters, RCCL's communicator included
_Medium = tuple[str, str, int | None, bool | None, int, str | None, int | None]


@lru_cache(maxsize=4096)  # even a large job has few of them
def _medium(via: bytes, cut: bool) -> _Medium | None:
    """Parses the text behind the word `via`; returns None if it names no medium.

    The result is (kind, network, device of the network, GPUDirect, length of the text, RCCL's communicator, number
    of ranks of that communicator).
    """
    net_device, gdr = None, None
    if (net := _NET.match(via)) is not None:
        end, attributes = net.end(), net[4].split(b"/")[1:]
        kind, network, net_device = net[1].decode(), text(net[2]), int(net[3])
        complete = not cut and (end == len(via) or via[end] in _ENDS_WELL) and not _torn(attributes)
        gdr = True if any(a.startswith(b"GDRDMA") for a in attributes) else False if complete else None
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
    """Returns whether the last attribute of a network may be the beginning of GDRDMA."""
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
    """Returns the communicator's pointer and the rank from a line about an abort; None for another line."""
    m = _ABORT.search(tail)
    return (m[1].decode(), int(m[2])) if m else None


def parse_prefix(head: bytes) -> Prefix | None:
    """Returns `host:pid:tid [device]` from the end of `head`; None if the prefix is incomplete."""
    m = _PREFIX.search(head[-_LONGEST_PREFIX:])
    if m is None:
        return None
    return Prefix(text(m[1]) or None, int(m[2]), int(m[3]), int(m[4]) if m[4] else None)


class Piece(NamedTuple):
    """One message of a line that may contain several.

    `torn` is whether the next message overwrote its end. If the log doesn't name the next message's host
    elsewhere, `glued` is the number of last bytes of the text that may be its name, and `host_ends` of the next
    message is the bytes that end with its host.
    """

    text: bytes
    torn: bool = False
    glued: int = 0
    host_ends: bytes = b""


def messages(line: bytes, hosts: set[bytes], lengths: set[int]) -> list[Piece]:
    """Returns the messages of a line that may contain several.

    A host name that is merged with the message before it ("NET/IB/0beta") is recognised if it is one of `hosts`,
    whose lengths are `lengths`. Separate messages are complete.
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
