"""Time of collectives on rings and trees, inside a node, between nodes, and with rings sharing a node's NICs.

The linear cost latency + bytes / bandwidth is Hockney's; bytes that a ring moves are Patarasuk & Yuan 2009
(doi 10.1016/j.jpdc.2008.09.002), the double tree's latency Sanders et al. 2009 as in NCCL 2.4; which of the two
NCCL takes between two nodes is what its own estimate says (wirecost.costmodel.nccl). What is fitted to
benchmarks is a link's achieved rate, its latencies, and `half_bytes`: NCCL reaches its rate only with size
(protocols LL, LL128, Simple), so that transfer time is bytes / rate x (1 + sqrt(half_bytes / size)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirecost.costmodel.inputs import LinkCosts, Machine
from wirecost.costmodel.nccl import takes_tree
from wirecost.costmodel.numbers import Flag, Number, has, where
from wirecost.spec import Link
from wirecost.spec.efficiency import CollectiveEfficiency

DEFAULT_LATENCY_S = {"intra": 20e-6, "inter": 25e-6}
DEFAULT_STEP_S = {"intra": 2e-6, "inter": 6e-6}
DEFAULT_EFFICIENCY = {"intra": 0.8, "inter": 0.8}
DEFAULT_HALF_BYTES = {"intra": 1e6, "inter": 1e6}
DEFAULT_SHARED = 0.6
TREE_EFFICIENCY = 0.85
"""A tree's bandwidth relative to a ring's between nodes (NVIDIA, "Massively Scale Your Deep Learning Training with
NCCL 2.4", figure of 24,576 GPUs on Summit)."""


@dataclass(slots=True)
class Group:
    """A process group of `size` ranks, `per_node` of them in each node, where `rings` such groups share a node's
    NICs; and what its collectives cost on a machine: the ring's rate, the fixed latency, the latency once around
    the ring, and the message size of half rate. `several` is 1 where there is anything to communicate."""

    size: Number
    per_node: Number
    rings: Number
    nodes: Number
    crosses: Flag  # the group spans nodes
    several: Number
    rate_Bps: Number
    fixed_s: Number
    ring_s: Number
    half_bytes: Number
    per_byte_s: Number  # of an all-gather's total size, at full rate
    curves: tuple[CollectiveEfficiency, ...] = ()  # what benchmarks measured on the machine


def group(size: Number, stride: Number, world: Number, machine: Machine) -> Group:
    """Returns the groups of `size` ranks whose neighbours lie `stride` ranks apart.

    The rule for shared NICs: a node of g GPUs holds per_node = min(size, g / stride) ranks of a group, so
    g / per_node groups run at once over the node's NICs, and each gets that part of the node's rate.
    """
    present = np.minimum(machine.gpus_per_node, world)
    per_node = np.minimum(size, np.maximum(1.0, np.floor(present / stride)))
    return placed(size, per_node, present / per_node, machine)


def placed(size: Number, per_node: Number, rings: Number, machine: Machine) -> Group:
    """Returns a group by where its ranks lie."""
    nodes = size / per_node
    crosses = nodes > 1
    several = (size > 1) * 1.0
    intra = machine.intra_Bps * machine.intra.efficiency
    if not has(crosses):
        steps = (size - 1) * machine.intra.step_s
        return Group(
            size,
            per_node,
            rings,
            nodes,
            crosses,
            several,
            intra,
            machine.intra.latency_s,
            steps,
            machine.intra.half_bytes,
            (size - 1) / (size * intra),
            machine.curves,
        )
    outside = crosses * 1.0
    between = nodes * outside
    # Every rank is a step of the ring. The step into another node is the slower one.
    steps = np.maximum(size - 1 - between, 0.0) * machine.intra.step_s + between * machine.inter.step_s
    # A ring with one rank in each node never uses the link inside.
    inside = intra + (per_node <= 1) * 1e30
    rate = np.where(crosses, np.minimum(inside, _node_rate_Bps(nodes, per_node, rings, machine)), intra)
    return Group(
        size,
        per_node,
        rings,
        nodes,
        crosses,
        several,
        rate,
        machine.intra.latency_s + outside * (machine.inter.latency_s - machine.intra.latency_s),
        steps,
        machine.intra.half_bytes + outside * (machine.inter.half_bytes - machine.intra.half_bytes),
        (size - 1) / (size * rate),
        machine.curves,
    )


def _node_rate_Bps(nodes: Number, per_node: Number, rings: Number, machine: Machine) -> Number:
    """Returns a ring's share of its node's NICs in bytes per second."""
    rate = machine.node_Bps * machine.inter.efficiency / rings
    if machine.nics_per_node < machine.gpus_per_node and machine.inter_shared != 1:
        # GPUs share NICs: rings that enter a node at one GPU and leave it at another meet on them.
        rate = where((rings > 1) & (per_node > 1), machine.inter_shared, 1.0) * rate
    return rate


def _wire_s(factor: Number, size_bytes: Number, members: Group, pieces: Number = 1.0) -> Number:
    # bytes x (1 + sqrt(half / bytes)), which is defined for no bytes as well
    return factor * members.per_byte_s * (size_bytes + np.sqrt(pieces * members.half_bytes * size_bytes))


def _ring_pieces(members: Group) -> Number:
    """Returns how much smaller the messages between nodes are than on two nodes. On a ring of n ranks each rank
    sends size / n at once, so that a ring over more nodes needs proportionally larger collectives to reach its
    rate."""
    return np.maximum(members.nodes / 2, 1.0)


def all_reduce_s(size_bytes: Number, members: Group, machine: Machine, message_bytes: Number = np.inf) -> Number:
    """Returns the seconds of the faster of ring and (between nodes) tree, which NCCL chooses; 0 for a group of
    one. `message_bytes` is the size of each part where it is done in parts, one after another."""
    parts, whole = _parts(size_bytes, message_bytes), size_bytes
    size_bytes = whole / parts
    wire = _wire_s(2.0, size_bytes, members)
    best = 2 * members.ring_s + _wire_s(2.0, size_bytes, members, _ring_pieces(members))
    if has(members.nodes > 2):
        levels = np.log2(np.maximum(members.nodes, 1.0))
        climb = 2 * (levels * machine.inter.step_s + (members.per_node - 1) * machine.intra.step_s)
        # Inside one node a tree is never used: its time is set above the ring's.
        best = np.minimum(best, climb + wire / TREE_EFFICIENCY + (members.nodes <= 2) * best)
    if machine.two_node_tree and has((members.nodes == 2) & (members.per_node > 1)):
        climb = 2 * (machine.inter.step_s + (members.per_node - 1) * machine.intra.step_s)
        # The tree sends every byte once each way, the ring 2 (n - 1) / n times.
        once = climb + wire * members.size / (2 * np.maximum(members.size - 1, 1.0))
        trees = (members.nodes == 2) & (members.per_node > 1)
        message = np.minimum(message_bytes, size_bytes)
        best = where(trees & takes_tree(message, members.size, machine.two_node_tree), once, best)
    modelled = parts * members.several * (members.fixed_s + best)
    return measured_s("all_reduce", modelled, whole, members, message_bytes)


def _parts(size_bytes: Number, message_bytes: Number) -> Number:
    """Returns the number of messages of at most `message_bytes` in which `size_bytes` are sent; a part of one
    counts as a part."""
    return np.maximum(size_bytes / np.maximum(message_bytes, 1.0), 1.0)


def gather_s(
    size_bytes: Number,
    members: Group,
    machine: Machine,
    op: str = "all_gather",
    message_bytes: Number = np.inf,
) -> Number:
    """Returns the seconds of an all-gather or reduce-scatter (`op`) of `size_bytes` in total on a ring; 0 for a
    group of one. `message_bytes` is the size of each part where it is done in parts."""
    parts = _parts(size_bytes, message_bytes)
    wire = _wire_s(1.0, size_bytes / parts, members, _ring_pieces(members))
    modelled = parts * members.several * (members.fixed_s + members.ring_s + wire)
    return measured_s(op, modelled, size_bytes, members, message_bytes)


def measured_s(
    op: str,
    modelled_s: Number,
    size_bytes: Number,
    members: Group,
    message_bytes: Number = np.inf,
) -> Number:
    """Returns the seconds that a benchmark measured (`Cluster.network_efficiency`) if it ran groups of this very
    shape, else `modelled_s`. Each part of `message_bytes` takes what a message of its size took."""
    message = np.minimum(message_bytes, size_bytes)
    parts = np.maximum(size_bytes / np.maximum(message, 1.0), 1.0)
    time = modelled_s
    for curve in members.curves:
        if curve.collective != op or curve.hosts is None:
            continue
        same = (members.size == curve.ranks) & (members.nodes == curve.hosts) & (members.rings == curve.groups)
        if has(same):
            time = where(same, parts * _on_curve(curve, message), time)
    return time


def _on_curve(curve: CollectiveEfficiency, size_bytes: Number) -> Number:
    seconds: Number = 0.0
    for piece in curve.segments:
        line = piece.intercept_ns * 1e-9 + size_bytes / piece.bandwidth_Bps
        seconds = where(size_bytes >= piece.from_bytes, line, seconds)
    # A later piece's line may meet the axis below 0, but nothing is faster than the smallest message.
    return np.maximum(seconds, 0.0)


def hierarchical_all_reduce_s(size_bytes: Number, members: Group, machine: Machine) -> Number:
    """Returns the seconds of a reduce-scatter inside nodes, an all-reduce between them and an all-gather inside
    (arXiv:1807.11205, section 4)."""
    inside = placed(members.per_node, members.per_node, members.rings, machine)
    between = placed(members.nodes, members.nodes * 0 + 1.0, members.rings * members.per_node, machine)
    share = size_bytes / members.per_node
    return 2 * gather_s(size_bytes, inside, machine) + all_reduce_s(share, between, machine)


def all_to_all_s(size_bytes: Number, members: Group, machine: Machine, once: Number = 1.0) -> Number:
    """Returns the seconds in which every rank sends `size_bytes` / n to each other one. What leaves the node
    shares its NICs among all its GPUs. `once` is the share of it that leaves where copies for several ranks of a
    node travel together."""
    n = members.size
    inside = size_bytes * (members.per_node - 1) / n / (machine.intra_Bps * machine.intra.efficiency)
    leaving = once * size_bytes * (n - members.per_node) / n
    nic = machine.node_Bps * machine.inter.efficiency / (members.rings * members.per_node)
    ramp = 1 + np.sqrt(members.half_bytes / np.maximum(size_bytes, 1.0))
    modelled = members.several * (members.fixed_s + np.maximum(inside, members.crosses * leaving / nic) * ramp)
    return measured_s("all_to_all", modelled, size_bytes, members)


def send_s(size_bytes: Number, between_nodes: Number, machine: Machine, senders: Number | None = None) -> Number:
    """Returns the seconds of one point-to-point message; between nodes `senders` of a node (all its GPUs, where
    not given) send at once and share the NICs."""
    sharing: Number = machine.gpus_per_node if senders is None else senders
    inside = machine.intra.step_s + size_bytes / (machine.intra_Bps * machine.intra.efficiency)
    nic = machine.node_Bps * machine.inter.efficiency / sharing
    outside = machine.inter.step_s + size_bytes / np.minimum(nic, machine.intra_Bps)
    return between_nodes * outside + (1 - between_nodes) * inside


def link_costs(link: Link, kind: str) -> LinkCosts:
    """Returns a link's efficiency, latencies and half-rate size with the defaults filled in. `kind`: intra or
    inter."""

    def value(given: float | None, default: float) -> float:
        return default if given is None else float(given)

    return LinkCosts(
        efficiency=value(link.efficiency, DEFAULT_EFFICIENCY[kind]),
        latency_s=value(link.latency, DEFAULT_LATENCY_S[kind]),
        step_s=value(link.latency_per_step, DEFAULT_STEP_S[kind]),
        half_bytes=value(link.half_rate_bytes, DEFAULT_HALF_BYTES[kind]),
    )
