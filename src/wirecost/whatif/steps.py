"""Puts the nodes of a rank into steps, in an order that respects what they wait for."""

from __future__ import annotations

import numpy as np

from wirecost.trace.recorded import Int64, Recorded
from wirecost.whatif.device_gaps import launch_positions
from wirecost.whatif.host_calls import HostCalls
from wirecost.whatif.launched import Launched
from wirecost.whatif.nodes import HOST, JOIN, NONE, SYNC, WORK, Step
from wirecost.whatif.stream_waits import StreamWaits


class Steps:
    """Puts the nodes of a rank into steps and in order."""

    def __init__(
        self,
        recorded: Recorded,
        work: Launched,
        host: HostCalls,
        waits: StreamWaits,
        joins: dict[int, int],
        streams: dict[int, int],
        boundaries: Int64,
    ) -> None:
        self._work, self._host, self._waits = work, host, waits
        self._stream = np.array([streams[int(s)] for s in work.stream], dtype=np.int64)
        self._joins = np.array([joins.get(int(row), NONE) for row in work.row], dtype=np.int64)
        self._launch = launch_positions(recorded, work, host)
        self._boundaries = boundaries

    def build(self, gap: np.ndarray, delay: np.ndarray) -> list[Step]:
        host, work = self._host, self._work
        host_step = np.searchsorted(self._boundaries, host.start_ns, side="right") - 1
        syncing = np.flatnonzero(host.syncs > 0)
        key_host = host.end_ns.copy()
        key_host[syncing] = host.start_ns[syncing]
        key_work = self._work_keys()
        # (key, priority): a launch before its work before the wait for it.
        keys = np.concatenate([key_host, key_work, host.end_ns[syncing]])
        priority = np.concatenate(
            [np.zeros(len(key_host)), np.ones(len(key_work)), np.full(len(syncing), 2)]
        ).astype(np.int64)
        item = np.concatenate([np.arange(len(key_host)), np.arange(len(key_work)), syncing])
        step = np.concatenate([host_step, work.step, host_step[syncing]])
        order = np.lexsort((item, priority, keys, step))
        order = order[step[order] >= 0]
        sources = self._sources()
        found: list[Step] = []
        place_of_host: dict[int, tuple[int, int]] = {}
        place_of_work: dict[int, tuple[int, int]] = {}
        launches_on = np.full(len(host.row), NONE, dtype=np.int64)
        valid = self._launch >= 0
        launches_on[self._launch[valid][::-1]] = self._stream[valid][::-1]
        for number in range(len(self._boundaries)):
            nodes = order[step[order] == number]
            found.append(
                self._step(number, nodes, (priority, item), (gap, delay), (place_of_host, place_of_work),
                           sources, launches_on)
            )  # fmt: skip
        _without_profilers_end(found)
        return found

    def _work_keys(self) -> Int64:
        """Returns when device work is replayed: after its launch's end, and in order on its stream."""
        work, host = self._work, self._host
        ready = np.where(self._launch >= 0, host.end_ns[np.maximum(self._launch, 0)], work.launch_ns)
        syncing = (self._launch >= 0) & (host.syncs[np.maximum(self._launch, 0)] == 3)
        ready = np.where(syncing, work.launch_ns, ready)
        keys = np.maximum(work.start_ns, ready)
        for stream in np.unique(work.stream):
            mine = np.flatnonzero(work.stream == stream)
            keys[mine] = np.maximum.accumulate(keys[mine])
        return keys

    def _sources(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for waiter, source in zip(self._waits.waiter.tolist(), self._waits.source.tolist(), strict=True):
            found.setdefault(waiter, []).append(source)
        return found

    def _step(self, number, nodes, what, timing, places, sources, launches_on) -> Step:
        priority, item = what
        gap, delay = timing
        place_of_host, place_of_work = places
        host, work = self._host, self._work
        step = Step([], [], [], [], [], [], [], [], {}, NONE, NONE)
        last_sync: dict[int, int] = {}
        for index, node in enumerate(nodes.tolist()):
            at = int(item[node])
            if priority[node] == 1:
                launch = place_of_host.get(int(self._launch[at]))
                step.kind.append(WORK if self._joins[at] < 0 else JOIN)
                step.ref.append(launch[1] if launch is not None and launch[0] == number else NONE)
                step.stream.append(int(self._stream[at]))
                step.gap.append(float(gap[at]))
                step.delay.append(float(delay[at]))
                step.length.append(float(work.end_ns[at] - work.start_ns[at]))
                step.join.append(int(self._joins[at]))
                step.row.append(int(work.row[at]))
                place_of_work[at] = (number, index)
                waits = [
                    (number - p[0], p[1]) for s in sources.get(at, ()) if (p := place_of_work.get(s)) is not None
                ]
                if waits:
                    step.waits[index] = waits
                continue
            sync = priority[node] == 2
            before = int(host.before[at])
            place = place_of_host.get(before) if before >= 0 else None
            step.kind.append(SYNC if sync else HOST)
            step.ref.append(place_of_host[at][1] if sync else place[1] if place and place[0] == number else NONE)
            step.stream.append(int(launches_on[at]) if not sync else int(host.syncs[at]))
            step.gap.append(0.0 if sync else float(host.gap_ns[at]))
            step.delay.append(0.0)
            step.length.append(0.0 if sync else float(host.work_ns[at]))
            step.join.append(NONE)
            step.row.append(NONE)
            if sync:
                target = self._sync_target(at, last_sync, place_of_work)
                if target is not None:
                    step.waits[index] = [(number - target[0], target[1])]
            place_of_host[at] = (number, index)
            step.last_host = index
        return step

    def _sync_target(self, at: int, _last: dict[int, int], place_of_work: dict) -> tuple[int, int] | None:
        """Returns the work that a call of the host waits for; None for the whole device."""
        host, work = self._host, self._work
        if host.syncs[at] == 2:
            return None
        if host.syncs[at] == 3:
            mine = np.flatnonzero(self._launch == at)
            return place_of_work.get(int(mine[0])) if len(mine) else None
        before = int(np.searchsorted(work.launch_ns, host.start_ns[at]))
        for position in range(before - 1, max(before - 4096, -1), -1):
            if work.thread[position] == host.thread[at] and work.end_ns[position] <= host.end_ns[at] + 2000:
                return place_of_work.get(position)
        return None


def _without_profilers_end(steps: list[Step]) -> None:
    """Takes out of the last step the waits at its end that other steps don't have: the profiler's own."""
    if len(steps) < 2:
        return
    last = steps[-1]
    extra = last.kind.count(SYNC) - steps[-2].kind.count(SYNC)
    launches = [i for i, kind in enumerate(last.kind) if kind == HOST and last.stream[i] >= 0]
    launch = launches[-1] if launches else NONE
    for index in range(len(last.kind) - 1, launch, -1):
        if last.kind[index] == SYNC and extra > 0:
            last.waits.pop(index, None)
            last.stream[index] = 1
            extra -= 1
