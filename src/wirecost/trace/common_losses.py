"""Losses that the ranks have in common: idle devices, exposed communication, pipeline bubbles, copies."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from wirecost.trace.causes import (
    BUBBLE,
    CONNECTIONS,
    DEPENDENCY,
    FIRST,
    LAST,
    LATE,
    LONGER,
    SAME_STREAM,
    UNCLEAR,
    WAITING,
)  # fmt: skip
from wirecost.trace.hosts import DEVICE_KINDS, host_words
from wirecost.trace.loss import Evidence, Loss, mean, typical
from wirecost.trace.matched_traces import MatchedTraces
from wirecost.trace.places import costliest_wait, exposed_ns, longest, most_exposed

if TYPE_CHECKING:
    from wirecost.trace.explained import Cause

# Exposed time that isn't matched over the ranks hides whether ranks wait, from this share of it on.
_UNSPLIT = 0.5
# Below this mean size a collective is bound by latency rather than bandwidth on current networks: NCCL switches
# from its low-latency protocols to Simple around it.
_SMALL_BYTES = 1 << 20
_MOST = 0.5  # of the exposed transfers: a cause of less isn't the cause
# The first remedy for each cause of exposed communication.
_REMEDIES = {
    LAST: "make what comes last smaller or earlier (bucket_cap_mb, the order of the buckets)",
    FIRST: "prefetch what comes first (forward and backward prefetching), or keep it from the step before",
    LATE: "launch collectives earlier: take work off the host (torch.compile, CUDA graphs)",
    SAME_STREAM: "give collectives a stream of their own (async_op=True, a process group of its own)",
    CONNECTIONS: "unset CUDA_DEVICE_MAX_CONNECTIONS=1, or raise it",
    DEPENDENCY: "give it work to hide behind: split batches or sequences, overlap tensor parallel products with "
    "their collectives",
    LONGER: "give it more compute to hide behind (larger micro-batches)",
}
_UNEVEN = 0.1  # pipeline stages whose compute differs by less count as balanced


def idle(e: Evidence) -> Loss | None:
    """Returns the loss by idle time that the ranks have in common: what late ranks have more of counts as their
    lateness."""
    listed = e.other_loads()
    common = typical(load.idle_ns for load in listed)
    kind, doing, remedy = host_words(e.idle_use(listed))
    everybody = "the " + e.processor if len(e.loads) == 1 else f"every rank's {e.processor}"
    if kind in DEVICE_KINDS or e.processor != "GPU":
        brief = f"{everybody[0].upper() + everybody[1:]} is idle {e.share(common)} {e.unit}"
    else:
        brief = f"The host can't feed {everybody}: idle {e.share(common)} {e.unit}"
    return e.loss(
        "idle_" + kind,
        common,
        brief + doing,
        f"if the {e.processor} never ran dry",
        remedy,
        brief=brief,
        place=longest(e.traces, "idle"),
    )


def transfer(e: Evidence) -> Loss | None:
    """Returns the loss by data that moves while nothing computes."""
    moving = mean(load.transfer_ns for load in e.loads)
    if not moving:
        return None
    top, share = _top_operation(e.traces, matched=True)
    where = f", {share:.0%} of it in {top}" if top is not None else ""
    return e.loss(
        "exposed_transfer", moving,
        f"Communication that compute doesn't hide: data moves {e.share(moving)} {e.unit} while nothing computes"
        f"{where}{_why(e.traces)}{_hidden(e)}",
        "if compute hid all of it, or the network took no time",
        _transfer_remedy(e), brief=f"Data moves {e.share(moving)} {e.unit} while nothing computes",
        place=most_exposed(e.traces, matched=True),
    )  # fmt: skip


def _own_cause(s: MatchedTraces) -> Cause | None:
    """Returns the cause that keeps at least half of the transfers exposed, waits aside; None if there is none."""
    own = [c for c in s.causes if c.code not in (WAITING, BUBBLE)]
    total = sum(c.exposed_ns for c in own)
    best = max(own, key=lambda c: c.exposed_ns, default=None)
    return best if best is not None and best.code != UNCLEAR and best.exposed_ns >= _MOST * total else None


def _why(s: MatchedTraces) -> str:
    cause = _own_cause(s)
    if cause is None:
        return ""
    whose = f" (rank {cause.rank})" if cause.rank is not None and cause.code == LATE and len(s.traces) > 1 else ""
    return f", mostly because {cause.text}{whose}"


def _hidden(e: Evidence) -> str:
    comm, overlapped = sum(load.comm_ns for load in e.loads), sum(load.overlapped_ns for load in e.loads)
    return f"; compute hides {overlapped / comm:.0%} of all communication" if comm else ""


def _top_operation(s: MatchedTraces, *, matched: bool) -> tuple[str | None, float]:
    """Returns (operation and group with the most exposed time of this kind, its share); see
    `places.exposed_ns`."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for trace, waits in zip(s.traces, s.waits, strict=True):
        calls, exposed = trace.calls, exposed_ns(trace, waits, matched=matched)
        for op, group, ns in zip(calls.op.tolist(), calls.group.tolist(), exposed.tolist(), strict=True):
            sums[calls.ops[op], calls.groups[group]] += ns
    total = sum(sums.values())
    if not total:
        return None, 0.0
    (op, group), most = max(sums.items(), key=lambda item: item[1])
    return op if group == "unknown" else f"{op} in group {group}", most / total


def _transfer_remedy(e: Evidence) -> str:
    known = [r for r in e.traces.collective_rows if r.bytes is not None]
    calls, size = sum(r.count for r in known), sum(r.bytes or 0 for r in known)
    cause = _own_cause(e.traces)
    if cause is not None and cause.code in _REMEDIES:
        first = _REMEDIES[cause.code]
    elif calls and size / calls < _SMALL_BYTES:
        first = f"send fewer, larger messages (the mean is {size / calls / 1024:.0f} KiB)"
    else:
        first = "start collectives earlier (gradient buckets, prefetching)"
    return (
        f"{first}; send less (accumulate gradients, lower precision); check the transport: NCCL_DEBUG=INFO, then "
        "`wirecost transport LOGS`"
    )


def bubble(e: Evidence) -> Loss | None:
    """Returns the loss by pipeline stages that wait for their neighbour's result."""
    waited = mean(load.bubble_ns for load in e.loads)
    if not waited:
        return None
    slowest = max(e.loads, key=lambda load: load.compute_ns)
    excess = slowest.compute_ns / mean(load.compute_ns for load in e.loads) - 1 if slowest.compute_ns else 0.0
    brief = f"Pipeline bubble: stages wait {e.share(waited)} {e.unit}"
    text = f"Pipeline bubble: stages wait for their neighbours' results {e.share(waited)} {e.unit}"
    remedy = "take more micro-batches, or an interleaved or zero-bubble schedule"
    if excess >= _UNEVEN:
        text += f"; rank {slowest.rank} computes {excess:.0%} longer than the mean of the ranks"
        remedy = "balance the stages (layers, embedding, loss); " + remedy
    return e.loss(
        "bubble", waited, text, "if no stage waited for its neighbour", remedy, brief=brief,
        place=costliest_wait(e.traces, bubble=True),
    )  # fmt: skip


def unsplit(e: Evidence) -> Loss | None:
    """Returns the loss by exposed communication that isn't matched over the ranks."""
    unknown = mean(load.unsplit_ns for load in e.loads)
    exposed = mean(load.exposed_ns for load in e.loads)
    if not unknown or unknown < _UNSPLIT * exposed:
        return None
    top, share = _top_operation(e.traces, matched=False)
    where = f", {share:.0%} of it in {top}" if top is not None else ""
    which = "one rank's trace" if len(e.traces.traces) == 1 else "these traces"
    missing = len(e.traces.traces) < e.traces.world_size
    return e.loss(
        "exposed_unsplit", unknown,
        f"Communication runs {e.share(unknown)} {e.unit} while nothing computes{where}; {which} can't tell "
        f"waiting from moving data{_hidden(e)}",
        "if compute hid all of it, or the network took no time",
        "record all ranks over the same steps and read them together" if missing or len(e.loads) == 1 else
        "record with a PyTorch that writes the arguments of collectives (2.4 or newer)",
        brief=f"Communication is exposed {e.share(unknown)} {e.unit}, waits unknown",
        place=most_exposed(e.traces, matched=False),
    )  # fmt: skip


def copies(e: Evidence) -> Loss | None:
    """Returns the loss by copies and fills that nothing hides."""
    copied = typical(load.memory_ns for load in e.other_loads())
    if not copied:
        return None
    return e.loss(
        "exposed_copies", copied, f"Only copies or fills run {e.share(copied)} {e.unit}",
        "if compute hid all copies",
        "pin host memory and copy with non_blocking=True on a stream of its own; keep what is copied every step "
        "on the device",
        place=longest(e.traces, "memory"),
    )  # fmt: skip
