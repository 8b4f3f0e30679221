"""Splits the idle time of a rank's device by what the host did meanwhile."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from wirecost.breakdown.intervals import Intervals, clip, from_pairs, measure_before, subtract, union
from wirecost.trace.recorded import NONE, Int64, Recorded

# PyTorch's annotation around the next() of a DataLoader (torch/utils/data/dataloader.py), and words of others'.
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|\bdata_?load|\b(load|next|get)_?batch|\bbatch.generator", re.IGNORECASE
)
# Host calls that block until the device is done (CUDA, HIP, SYCL, CANN).
_SYNCHRONISE = re.compile(r"synchronize", re.IGNORECASE)


class IdleUse(msgspec.Struct):
    """The idle time of one window by cause; the five parts sum to it, in ns.

    `loading_ns`: the host loads data. `synchronised_ns`: the host had waited for the device to finish and then
    launched again. `launching_ns`: the host launches too slowly for another reason. `queued_ns`: the next kernel
    was already launched and waits on the device, for another stream or for its own start. `unknown_ns`: the launch
    isn't recorded.
    """

    loading_ns: int = 0
    synchronised_ns: int = 0
    launching_ns: int = 0
    queued_ns: int = 0
    unknown_ns: int = 0


def idle_uses(recorded: Recorded, sets: Sequence[Intervals], windows: Sequence[tuple[int, int]]) -> list[IdleUse]:
    """Returns one `IdleUse` for each window [start_ns, end_ns). `sets` are the merged intervals of device work."""
    busy = union(union(sets[0], sets[1]), sets[2])
    loading = from_pairs((a.start_ns, a.end_ns) for a in recorded.cpu_annotations if _LOADING.search(a.name))
    blocked = _blocked(recorded)
    device = recorded.device
    order = np.argsort(device.start_ns, kind="stable")
    launched = _launched_ns(recorded)[order]
    begins = device.start_ns[order]
    listed = []
    for start, end in windows:
        window = np.array([[start, end]], dtype=np.int64)
        gaps = subtract(window, clip(busy, start, end)) if end > start else window[:0]
        listed.append(_use(gaps, loading, blocked, begins, launched))
    return listed


def _launched_ns(recorded: Recorded) -> Int64:
    """Returns when the call that launched each device event ended; -1 is unknown."""
    rows = recorded.launch
    if not len(recorded.launches):
        return rows
    return np.where(rows >= 0, recorded.launches.end_ns[rows], NONE)


def _blocked(recorded: Recorded) -> Intervals:
    launches = recorded.launches
    wanted = np.array([bool(_SYNCHRONISE.search(name)) for name in launches.names], dtype=bool)
    if not wanted.any():
        return from_pairs([])
    rows = wanted[launches.name]
    return from_pairs(zip(launches.start_ns[rows].tolist(), launches.end_ns[rows].tolist(), strict=True))


def _use(gaps: Intervals, loading: Intervals, blocked: Intervals, begins: Int64, launched: Int64) -> IdleUse:
    if not len(gaps):
        return IdleUse()
    start, end = gaps[:, 0], gaps[:, 1]
    load = measure_before(loading, end) - measure_before(loading, start)
    rest = end - start - load
    following = np.searchsorted(begins, end, side="left")
    has_next = following < len(begins)
    launch = np.where(has_next, launched[np.minimum(following, max(len(begins) - 1, 0))], -1)
    known = launch >= 0
    late = known & (launch > start)
    # The end of a synchronisation is where the device ran dry: just after the start of the gap.
    at = np.searchsorted(blocked[:, 1], start, side="left")
    inside = at < len(blocked)
    synchronised = np.zeros(len(gaps), dtype=bool)
    if len(blocked):
        synchronised = inside & (blocked[np.minimum(at, len(blocked) - 1), 0] <= start)
    return IdleUse(
        loading_ns=int(load.sum()),
        synchronised_ns=int(rest[late & synchronised].sum()),
        launching_ns=int(rest[late & ~synchronised].sum()),
        queued_ns=int(rest[known & ~late].sum()),
        unknown_ns=int(rest[~known].sum()),
    )
