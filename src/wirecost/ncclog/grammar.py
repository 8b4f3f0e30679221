"""The lines of an NCCL or RCCL log that matter, one regular expression each.

The forms are those of NCCL's own format strings from 2.4 to 2.30 (src/transport/*.cc, src/init.cc) and RCCL's:
`Ring NN :` before 2.7, `Channel NN :` to 2.11, `Channel NN/c :` from 2.12; NET lines without brackets in 2.4;
a bus id in the bracket before 2.18 and a device index after; `/GDRDMA(PCI)` from 2.26; RCCL's lines end in
` comm 0x... nRanks NN`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Edge(NamedTuple):
    """One `Channel a -> b via ...` line without its channel number. `side` is "send" or "receive" on NET lines:
    the line speaks of that end alone. `gdr` is None where it doesn't apply or the line may have been cut."""

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
    rb"(?:Channel|Ring) \d+(?:/(?P<conn>\d+))? : "
    rb"(?P<a>\d+)(?:\[(?P<adev>-?[0-9a-fA-F]+)\])? -> (?P<b>\d+)(?:\[(?P<bdev>-?[0-9a-fA-F]+)\])?"
    rb"(?: \[(?P<side>send|receive)\])? via (?P<via>[^\n]*?)"
    rb"(?: comm (?P<comm>0x[0-9a-f]+) nRanks (?P<nranks>\d+))?\s*$"
)
_COLLNET = re.compile(
    rb"Coll(?:Net)? \d+(?:/(?P<conn>\d+))? : (?P<a>\d+) \[(?P<side>send|receive)\] via (?P<via>COLLNET/[^\n]*?)"
    rb"(?: comm (?P<comm>0x[0-9a-f]+) nRanks (?P<nranks>\d+))?\s*$"
)
_NET = re.compile(rb"(NET|COLLNET)/([^/]+)/(\d+)(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(/Shared)?$")
# What stays certain where the end of the line is lost, or another line is glued to it.
_NET_CUT = re.compile(rb"(NET|COLLNET)/([^/]+)/(\d+)(?:\(\d+\))?(/GDRDMA)?")
_INSIDE_CUT = re.compile(rb"(?:P2P/)(IPC|CUMEM|MNNVL|direct pointer|indirect)|(?:SHM/)(direct|CE)")
_INIT = re.compile(
    rb"comm (0x[0-9a-f]+) rank (\d+) nranks (\d+) cudaDev (\d+)(?: nvmlDev -?\d+)?(?: busId ([0-9a-f]+))?(.*?)"
    rb"- ?Init (START|COMPLETE)"
)
_NODES = re.compile(rb"comm (0x[0-9a-f]+) rank (\d+) nRanks \d+ nNodes (\d+)")
_COMM_ID = re.compile(rb" commId (0x[0-9a-f]+)")
_SPLIT = re.compile(rb" parent (0x[0-9a-f]+)(?: splitCount (\d+))? color (-?\d+)")
# A host name holds no colon, so that whatever a launcher puts before it ("[1,4]<stdout>:", "[rank0]:") falls away.
_PREFIX = re.compile(rb"([^\s:/]*):(\d+):(\d+)(?:\s+\[(-?\d+)\])?(?:\s+\S+:\d+)?(?: \(\S+\))?\s*$")


def text(raw: bytes) -> str:
    """Bytes of a log as text that is safe to show: nothing unprintable survives."""
    return "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "replace"))


def parse_edge(tail: bytes, *, cut: bool = False) -> Edge | None:
    """The edge of a `Channel`, `Ring` or `CollNet` line, or None where it is something else or incomplete.

    `tail` starts at the word `Channel`. `cut` says that the end of the line may be missing: an absent `/GDRDMA`
    then proves nothing.
    """
    collnet = tail.startswith(b"Coll")
    m = (_COLLNET if collnet else _EDGE).match(tail)
    if m is None:
        return None
    if collnet:
        conn, sender, side, via, comm, nranks = m.groups()
        receiver, sender_device, receiver_device = sender, None, None
    else:
        conn, sender, sender_device, receiver, receiver_device, side, via, comm, nranks = m.groups()
    medium = _medium(via, cut)
    if medium is None or (medium[0] in ("NET", "COLLNET") and side is None):
        return None
    kind, network, net_device, gdr = medium
    return Edge(
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
        comm.decode() if comm else None,
        int(nranks) if nranks else None,
    )


@lru_cache(maxsize=4096)  # a job of any size has few of them
def _medium(via: bytes, cut: bool) -> tuple[str, str, int | None, bool | None] | None:
    """(kind, network, device of the network, GPUDirect) behind the word `via`, or None for anything else."""
    if cut and (word := _INSIDE_CUT.match(via)) is not None:
        via = word[0]
    if (net := (_NET_CUT if cut else _NET).match(via)) is not None:
        return net[1].decode(), text(net[2]), int(net[3]), True if net[4] else (None if cut else False)
    if via.startswith(b"P2P/") and len(via) > 4:
        return "P2P", text(via[4:]), None, None
    if via.startswith(b"SHM/") or via == b"direct shared memory":
        return "SHM", text(via[4:]) if via.startswith(b"SHM/") else "direct", None, None
    return None


def parse_init(tail: bytes) -> InitLine | None:
    m = _INIT.search(tail)
    if m is None:
        return None
    comm_id, split = _COMM_ID.search(m[6]), _SPLIT.search(m[6])
    return InitLine(
        comm=m[1].decode(),
        rank=int(m[2]),
        nranks=int(m[3]),
        cuda_device=int(m[4]),
        bus_id=m[5].decode() if m[5] else None,
        comm_id=comm_id[1].decode() if comm_id else None,
        split=b"/".join(g or b"" for g in split.groups()).decode() if split else None,
        complete=m[7] == b"COMPLETE",
    )


def parse_nodes(tail: bytes) -> NodesLine | None:
    m = _NODES.search(tail)
    return NodesLine(m[1].decode(), int(m[2]), int(m[3])) if m else None


def parse_prefix(head: bytes) -> Prefix | None:
    """`host:pid:tid [device]` at the end of `head`, or None where the prefix was cut off."""
    m = _PREFIX.search(head)
    if m is None:
        return None
    return Prefix(text(m[1]) or None, int(m[2]), int(m[3]), int(m[4]) if m[4] else None)
