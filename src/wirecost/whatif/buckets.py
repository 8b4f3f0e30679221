"""Other buckets of DistributedDataParallel: which gradients each bucket holds, and when its all-reduce begins.

PyTorch fills buckets in the order in which gradients become ready, and closes one as soon as it holds the cap
(`compute_bucket_assignment_by_size` in torch/csrc/distributed/c10d/reducer.cpp). The k-th gradient that is
accumulated is the k-th that is copied into a bucket; its bytes follow from the grid of that copy and from the
bytes of its bucket. With gradients as views of buckets there are no copies, and bytes are shared out evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.diagnostics import diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif.network import NetworkModel
from wirecost.whatif.nodes import HOST, JOIN, Collective, RankGraph, Step
from wirecost.whatif.rewrite import Node, Rewriting, rewrite
from wirecost.whatif.scenario import Scenario

MIB = 1 << 20


@dataclass
class _Gradient:
    """A gradient: its bytes, the host call after which it is there, and the device work that its bucket waits
    for."""

    bytes: float
    host: int
    work: int


@dataclass
class _Bucket:
    join: int  # position in the step
    number: int  # of the collective
    host: int
    bytes: float
    gradients: list[_Gradient]


def with_buckets(scenario: Scenario, cap_mib: float, network: NetworkModel) -> Scenario:
    """Returns the job with buckets of `cap_mib` MiB.

    Args:
        network: gives transfer times of the new buckets.

    Raises:
        WirecostError: if the traces show no gradients that DistributedDataParallel reduces in buckets.
    """
    if cap_mib <= 0:
        raise WirecostError("--bucket-mib: a bucket's cap must be positive")
    graph = scenario.graph
    collectives = list(scenario.collectives)
    transfers = list(scenario.transfer_ns)
    ranks: list[list[Step]] = []
    shared_joins: dict[tuple[int, int], int] = {}
    any_found, estimated = False, False
    for rank, steps in zip(graph.ranks, scenario.ranks, strict=True):
        new_steps: list[Step] = []
        moved: dict[int, int] | None = None
        for number, step in enumerate(steps):
            buckets, exact = _buckets(rank, step, collectives)
            change = Rewriting()
            if buckets:
                any_found, estimated = True, estimated or not exact
                joins = _new_joins(buckets, cap_mib, number, (collectives, transfers, network), shared_joins)
                change = _change(step, buckets, joins)
            new_step, moved = rewrite(step, change, moved)
            new_steps.append(new_step)
        ranks.append(new_steps)
    if not any_found and any(rank.record.waits is not None for rank in scenario.graph.ranks):
        raise WirecostError(
            "--bucket-mib: recordings of processors don't tell which gradients a bucket holds, so nothing is "
            "known of other buckets"
        )
    if not any_found:
        raise WirecostError(
            "--bucket-mib: the traces show no all-reduce of gradients in buckets (DistributedDataParallel); "
            "other plans have no such cap"
        )
    diagnostics = list(scenario.diagnostics)
    if estimated:
        diagnostics.append(
            diagnostic(
                "gradient_sizes_estimated",
                "gradients are views of their buckets, so that no copy tells their sizes: a bucket's bytes are "
                "shared out evenly among its gradients",
            )
        )
    return replace(
        scenario, ranks=ranks, collectives=collectives, transfer_ns=transfers, low_ns=list(transfers),
        high_ns=list(transfers), diagnostics=diagnostics,
    )  # fmt: skip


def _buckets(rank: RankGraph, step: Step, collectives: list[Collective]) -> tuple[list[_Bucket], bool]:
    """Returns the recorded buckets of a step with their gradients, and whether the gradients' bytes are exact."""
    record = rank.record
    spans = record.gradients
    if len(spans) == 0:
        return [], True
    position = {row: index for index, row in enumerate(step.row) if row >= 0}
    launch_rows = record.recorded.launch
    launches = record.recorded.launches
    host_ns = {index: int(launches.start_ns[launch_rows[row]]) for row, index in position.items()}
    begun = min(host_ns.values(), default=0)
    until = max(host_ns.values(), default=0)
    mine = spans[(spans[:, 1] >= begun) & (spans[:, 0] <= until)]
    if len(mine) == 0:
        return [], True
    joins = [
        index
        for index in position.values()
        if step.kind[index] == JOIN
        and collectives[step.join[index]].op == "all_reduce"
        and (collectives[step.join[index]].bytes or 0) > 0
        and host_ns[index] >= mine[0, 0]
    ]
    joins.sort(key=lambda index: host_ns[index])
    work = sorted(
        (host_ns[index], index) for row, index in position.items()
        if step.kind[index] != JOIN and step.ref[index] >= 0 and not record.recorded.device.comm[row]
    )  # fmt: skip
    times = np.array([t for t, _ in work], dtype=np.int64)
    joined_ns = np.array([host_ns[index] for index in joins], dtype=np.int64)
    buckets = [
        _Bucket(index, step.join[index], step.ref[index], float(collectives[step.join[index]].bytes or 0), [])
        for index in joins
    ]
    blocks: list[list[float]] = [[] for _ in buckets]
    copies = record.bucket_copies
    exact = True
    for _start, end in mine.tolist():
        bucket = int(np.searchsorted(joined_ns, end))
        if bucket >= len(buckets):
            continue
        copy = int(np.searchsorted(copies[:, 0], end)) if len(copies) else 0
        copied = len(copies) > copy and copies[copy, 0] - end < 1_000_000 and copies[copy, 0] < joined_ns[bucket]
        if copied:
            at = int(np.searchsorted(times, copies[copy, 0]))
            inside = at < len(work) and times[at] <= copies[copy, 1]
        else:
            inside = False
            at = int(np.searchsorted(times, end)) - 1
        if at < 0 or at >= len(work):
            continue
        index = work[at][1]
        size = float(record.blocks[step.row[index]]) if inside else -1.0
        exact = exact and inside and size > 0
        blocks[bucket].append(size)
        buckets[bucket].gradients.append(_Gradient(0.0, step.ref[index], index))
    found = []
    for bucket, sizes in zip(buckets, blocks, strict=True):
        if not bucket.gradients:
            continue
        known = np.array(sizes)
        shares = known / known.sum() if (known > 0).all() else np.full(len(known), 1 / len(known))
        for gradient, share in zip(bucket.gradients, shares, strict=True):
            gradient.bytes = bucket.bytes * float(share)
        found.append(bucket)
    return found, exact


def assigned(sizes: list[float], cap_bytes: float) -> list[list[int]]:
    """Returns the gradients (by number, in order of readiness) of each bucket: a bucket is closed as soon as it
    holds the cap."""
    found: list[list[int]] = []
    current: list[int] = []
    total = 0.0
    for number, size in enumerate(sizes):
        current.append(number)
        total += size
        if total >= cap_bytes:
            found.append(current)
            current, total = [], 0.0
    if current:
        found.append(current)
    return found


def _new_joins(buckets, cap_mib: float, number: int, into, shared) -> list[tuple[int, list[_Gradient]]]:
    """Returns (join, gradients) of each new bucket; ranks share joins by step and order."""
    collectives, transfers, network = into
    gradients = [g for bucket in buckets for g in bucket.gradients]
    # Sizes from grids are rounded up to whole blocks: a hundredth is left for that.
    parts = assigned([g.bytes for g in gradients], cap_mib * MIB * 0.999)
    found = []
    for order, part in enumerate(parts):
        key = (number, order)
        members = [gradients[i] for i in part]
        if key not in shared:
            size = round(sum(g.bytes for g in members))
            template = collectives[buckets[0].number]
            new = Collective(
                "all_reduce", template.group, template.size, size, template.members, 0, template.known,
                template.position, template.spans,
            )  # fmt: skip
            transfer = network.transfer(new)
            new.transfer_ns = round((transfer.seconds if transfer else 0.0) * 1e9)
            shared[key] = len(collectives)
            collectives.append(new)
            transfers.append(float(new.transfer_ns))
        found.append((shared[key], members))
    return found


def _change(step: Step, buckets: list[_Bucket], joins: list[tuple[int, list[_Gradient]]]) -> Rewriting:
    change = Rewriting()
    old = {bucket.join for bucket in buckets}
    change.leave_out = old | {bucket.host for bucket in buckets if bucket.host >= 0}
    first = buckets[0]
    stream = step.stream[first.join]
    hosts = [bucket.host for bucket in buckets if bucket.host >= 0]
    work = float(np.median([step.length[h] for h in hosts])) if hosts else 10_000.0
    gap = float(np.median([step.gap[h] for h in hosts])) if hosts else 50_000.0
    pause = float(np.median([step.gap[b.join] for b in buckets]))
    delay = float(np.median([step.delay[b.join] for b in buckets]))
    of_gradient: dict[int, str] = {}
    for number, (join, gradients) in enumerate(joins):
        last = gradients[-1]
        key, launch = f"join {number}", f"launch {number}"
        change.put_in.setdefault(last.host, []).append(Node(HOST, stream, gap, work, key=launch))
        change.put_in.setdefault(last.work, []).append(
            Node(
                JOIN,
                stream,
                pause,
                0.0,
                delay=delay,
                join=join,
                key=key,
                launch_key=launch,
                waits=[(0, last.work)],
            )
        )
        for gradient in gradients:
            of_gradient[gradient.work] = key
    # What waited for an old bucket waits for the new one that holds its last gradient.
    instead = {bucket.join: of_gradient.get(bucket.gradients[-1].work, "") for bucket in buckets}
    for index, places in step.waits.items():
        keys = [instead[at] for back, at in places if back == 0 and at in instead and instead[at]]
        if keys:
            change.waits_on[index] = keys
    return change


__all__ = ["MIB", "assigned", "with_buckets"]
