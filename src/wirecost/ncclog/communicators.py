"""Groups the ranks of a log into communicators and determines each rank's host."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from wirecost.ncclog.grammar import Edge
from wirecost.ncclog.state import LogState, Membership, Process


@dataclass(slots=True, eq=False)
class Communicator:
    """The ranks of a communicator with the edges that they printed."""

    id: str | None
    nranks: int | None
    members: list[Membership] = field(default_factory=list)
    edges: list[tuple[Process, Edge]] = field(default_factory=list)
    host_of: dict[int, str | None] = field(default_factory=dict)  # None: contradictory or truncated
    nodes: int | None = None
    names_not_unique: bool = False
    gpus: set[tuple[str, str]] = field(default_factory=set)  # (host, device) of the ranks with a known host

    def hosts(self) -> list[str]:
        return sorted({h for h in self.host_of.values() if h is not None})


def communicators_of(state: LogState) -> list[Communicator]:
    """Returns all communicators of a log. The last ones (`id` None) hold edges that can't be assigned to a
    communicator.
    """
    communicators = _group(state)
    for communicator in communicators:
        for member in communicator.members:
            communicator.edges.extend((member.process, edge) for edge in member.edges)
            communicator.nodes = member.nodes or communicator.nodes
    communicators += _leftovers(state, communicators)
    for communicator in communicators:
        _place(communicator)
    return communicators


def _group(state: LogState) -> list[Communicator]:
    by_key: dict[object, Communicator] = {}
    order: list[Communicator] = []
    key_of: dict[tuple[int, str], object] = {}
    occupied: set[tuple[object, int]] = set()
    for process in state.processes.values():
        for member in process.memberships:
            key = _key(member, key_of)
            key_of[(id(process), member.comm)] = key
            # Without a commId the order of creation identifies a communicator, unless two processes claim the same
            # rank.
            if (key, member.rank) in occupied:
                key = ("apart", id(member))
            occupied.add((key, member.rank))
            communicator = by_key.get(key)
            if communicator is None:
                communicator = by_key[key] = Communicator(member.comm_id or member.comm, member.nranks)
                order.append(communicator)
            communicator.members.append(member)
    return order


def _key(member: Membership, key_of: dict[tuple[int, str], object]) -> object:
    if member.comm_id is not None:
        return ("id", member.comm_id, member.nranks)
    if member.split is not None:
        parent, count, color = member.split.split("/")
        return ("split", key_of.get((id(member.process), parent)), count, color, member.nranks)
    return ("order", member.nranks, member.order)


def _leftovers(state: LogState, known: list[Communicator]) -> list[Communicator]:
    """Groups the edges without a unique communicator by the communicators that they can belong to."""
    home = {id(m): c for c in known for m in c.members}
    groups: dict[object, Communicator] = {}
    choices: dict[object, list[Communicator]] = defaultdict(list)
    for process in state.processes.values():
        for device, edges in process.loose_edges.items():
            for edge in edges:
                fits = [home[id(m)] for m in state.candidates(process, device, edge)]
                fits = [c for c in fits if _peers_fit(c, process, edge)] or fits
                if len(fits) == 1:
                    fits[0].edges.append((process, edge))
                    continue
                key = (edge.nranks, *sorted({id(c) for c in fits}))
                if key not in groups:
                    groups[key] = Communicator(None, edge.nranks)
                    choices[key] = fits
                groups[key].edges.append((process, edge))
    for key, communicator in groups.items():
        # A rank's host is known if all candidate communicators agree on it.
        for rank in {r for c in choices[key] for m in c.members for r in (m.rank,)}:
            hosts = {m.process.host_identity for c in choices[key] for m in c.members if m.rank == rank}
            communicator.host_of[rank] = hosts.pop() if len(hosts) == 1 else None
        nodes = {c.nodes for c in choices[key]}
        communicator.nodes = nodes.pop() if len(nodes) == 1 else None
    return list(groups.values())


def _peers_fit(communicator: Communicator, process: Process, edge: Edge) -> bool:
    """Returns whether an edge's ranks can be those of a communicator: they are on the GPUs that the line names,
    and peer access and shared memory stay on one host.
    """
    for rank, device in ((edge.sender, edge.sender_device), (edge.receiver, edge.receiver_device)):
        members = [m for m in communicator.members if m.rank == rank]
        if members and not any(m.is_on(device) for m in members):
            return False
        hosts = {m.process.host_identity for m in members}
        inside = edge.kind == "SHM" or (edge.kind == "P2P" and not edge.network.startswith("MNNVL"))
        if inside and hosts and None not in hosts and process.host_identity not in hosts:
            return False
    return True


def _place(communicator: Communicator) -> None:
    """Fills `host_of` from the Init lines and the edges' prefixes."""
    places: dict[int, set[str | None]] = defaultdict(set)
    devices: dict[int, str | None] = {}
    for member in communicator.members:
        places[member.rank].add(member.process.host_identity)
        devices[member.rank] = member.bus_id
    if not communicator.host_of:
        for process, edge in communicator.edges:
            rank = edge.local_rank
            places[rank].add(process.host_identity)
            own = edge.receiver_device if edge.side == "receive" else edge.sender_device
            devices.setdefault(rank, own)
    for rank, hosts in places.items():
        communicator.host_of[rank] = next(iter(hosts)) if len(hosts) == 1 else None
    for _, edge in communicator.edges:
        for rank, device in ((edge.sender, edge.sender_device), (edge.receiver, edge.receiver_device)):
            if device is not None and (host := communicator.host_of.get(rank)) is not None:
                communicator.gpus.add((host, device))
    if _one_name_for_several_hosts(communicator, devices):
        communicator.names_not_unique = True
        communicator.host_of = dict.fromkeys(communicator.host_of)


def _one_name_for_several_hosts(communicator: Communicator, devices: dict[int, str | None]) -> bool:
    """Returns whether one host name stands for several machines (it was anonymised, or is "localhost" everywhere).

    That is so if two ranks on one "host" have the same device, which NCCL refuses. Containers that each see one
    GPU as device 0 look the same, so device 0 counts only if the ranks also reach others inside the host.
    """
    occupied: set[tuple[str | None, str | None]] = set()
    twice: set[str | None] = set()
    for rank, host in communicator.host_of.items():
        place = (host, devices.get(rank))
        if host is not None and place[1] is not None and place in occupied:
            twice.add(place[1])
        occupied.add(place)
    if not twice:
        return False
    if any(m.bus_id in twice for m in communicator.members):
        return True
    return any(edge.kind in ("P2P", "SHM") for _, edge in communicator.edges) or twice != {"0"}
