"""Finds why communication is exposed.

For each exposed call it considers when the call's data were ready, when the host launched the call, what ran
before it on its stream, and what kept the following compute from running at the same time.

Traces don't contain dependencies between streams. They are inferred from the rules of streams: a collective waits
for the newest operation that its thread launched before it. Compute waits for a collective if, between the two
launches, the host made a stream wait (`cudaStreamWaitEvent` outside of the collective's own launch) or waited
itself.
"""

from __future__ import annotations

import msgspec
import numpy as np

from wirecost.trace.host_waits import HostWaits
from wirecost.trace.recorded import NONE, Int64, Recorded
from wirecost.trace.situation import Situation

# Codes of causes, in the order in which they are numbered.
LAST, FIRST, LATE, WAITING, BUBBLE, SAME_STREAM, CONNECTIONS, DEPENDENCY, LONGER, GAPS, UNCLEAR = CODES = (
    "last_bucket",
    "first_gather",
    "launched_late",
    "waiting_for_rank",
    "pipeline_bubble",
    "same_stream",
    "serialised_connections",
    "dependency",
    "longer_than_compute",
    "gaps",
    "unknown",
)
CAUSES = {
    LAST: "the last of its kind: no compute is left that could hide it",
    FIRST: "the first of its kind: no compute runs before its result is there",
    LATE: "the host launched it, or the compute beside it, late",
    WAITING: "it waits for another rank",
    BUBBLE: "a pipeline's stage waits for its neighbour",
    SAME_STREAM: "it runs on the stream of the compute kernels, so nothing can run beside it",
    CONNECTIONS: "compute that doesn't need its result waits behind it in one hardware queue "
    "(CUDA_DEVICE_MAX_CONNECTIONS)",
    DEPENDENCY: "the compute after it needs its result, and nothing else is there to run",
    LONGER: "it takes longer than the compute that could hide it",
    GAPS: "compute hides it but for gaps between kernels",
    UNCLEAR: "the trace doesn't tell",
}

# Below this a call's exposed time is the latency of launches and of the last step of a transfer.
_LEAST_NS = 2_000
# Time between a launch and its start, or between an end and the start of the work that waited for it.
_LATENCY_NS = 15_000
# A call counts as hidden in part where compute covers this share of it.
_HIDDEN_SHARE = 0.1
_LATE_SHARE = 0.5
# Exposed stretches no longer than this, in a call that compute covers otherwise, are gaps between kernels.
_GAP_NS = 20_000
_COVERED_SHARE = 0.7
# Between a last bucket and the optimizer lie copies out of the bucket, and no more than this share of its time.
_LEFT_SHARE = 0.25


class Causes(msgspec.Struct):
    """The cause of each call, and the host call that delayed it, as indices.

    `cause` indexes `CODES`; it is -1 if nothing of the call is exposed. `host_call` indexes `host_calls`, the
    calls that kept the host from launching in time; it is -1 if there was none.
    """

    cause: Int64
    host_call: Int64
    host_calls: list[str]


def find_causes(
    situation: Situation, kinds: Int64, iteration: Int64, recorded: Recorded, *, on_host: bool
) -> Causes:
    """Returns the cause of each call, as far as the trace of one rank shows it.

    Args:
        kinds: a number for each call's operation and group; calls with the same number are siblings.
        iteration: the iteration of each call.
        on_host: whether the time line is the host's own, where calls have no launch.
    """
    waits = HostWaits(recorded)
    s = situation
    if on_host:
        s.launch_ns, s.next_launch_ns = s.start_ns, s.next_start_ns
    n = len(situation.start_ns)
    cause = np.full(n, NONE, dtype=np.int64)
    host_call = np.full(n, NONE, dtype=np.int64)
    names: dict[str, int] = {}
    number = {code: index for index, code in enumerate(CODES)}
    nothing_to_run: list[int] = []
    for call in np.flatnonzero(situation.exposed_ns >= _LEAST_NS):
        code = _cause(situation, int(call), waits, on_host=on_host)
        if code == DEPENDENCY:
            nothing_to_run.append(int(call))
        elif code == LATE:
            name = waits.during(int(situation.ready_ns[call]), int(situation.launch_ns[call]))
            if name is not None:
                host_call[call] = names.setdefault(name, len(names))
        cause[call] = number[code]
    for call in nothing_to_run:
        cause[call] = number[_first_or_last(situation, call, kinds, iteration)]
    return Causes(cause, host_call, list(names))


def _cause(s: Situation, call: int, waits: HostWaits, *, on_host: bool) -> str:
    """Returns the cause of one exposed call, waits for other ranks aside; DEPENDENCY where nothing else was there
    to run."""
    start, end, exposed = int(s.start_ns[call]), int(s.end_ns[call]), int(s.exposed_ns[call])
    slack = min(_LATENCY_NS, max((end - start) // 5, 2_000))
    partly_hidden = s.beside_ns[call] >= _HIDDEN_SHARE * (end - start)
    if s.longest_ns[call] <= _GAP_NS and s.beside_ns[call] >= _COVERED_SHARE * (end - start):
        return GAPS
    if s.mixed[call] and not on_host:
        return SAME_STREAM
    if on_host:
        return LONGER if partly_hidden else DEPENDENCY
    if s.launch_ns[call] < 0 or s.ready_ns[call] < 0 or s.graph[call]:
        return LONGER if partly_hidden else UNCLEAR
    could_start = max(int(s.ready_ns[call]), int(s.queue_ns[call]))
    late = start - could_start
    if late > max(_LATENCY_NS, _LATE_SHARE * exposed) and start - int(s.launched_ns[call]) <= 2 * _LATENCY_NS:
        return LATE
    queued = s.queue_ns[call] > s.ready_ns[call] and start - s.queue_ns[call] <= slack + _LATENCY_NS
    if queued and s.since_ready_ns[call] >= _HIDDEN_SHARE * exposed:
        return LONGER
    if partly_hidden:
        # A hole is left if compute starts during the call later than it could; without a hole, compute ran out.
        hole = start <= s.next_start_ns[call] < end - slack
        why = _why_nothing_runs(s, call, waits, slack) if hole else LONGER
        return why if why in (LATE, CONNECTIONS) else LONGER
    return _why_nothing_runs(s, call, waits, slack)


def _why_nothing_runs(s: Situation, call: int, waits: HostWaits, slack: int) -> str:
    """Returns why no compute overlaps a call after it becomes exposed, judged by the next compute kernel."""
    end, since = int(s.end_ns[call]), int(s.exposed_from_ns[call])
    next_start, next_launch = int(s.next_start_ns[call]), int(s.next_launch_ns[call])
    if next_start < 0 or next_launch < 0:
        return DEPENDENCY
    if waits.blocked(end, next_launch, since):
        return DEPENDENCY  # the host itself waits for the result
    if next_launch > since + slack + _LATENCY_NS and next_start - next_launch <= 2 * _LATENCY_NS:
        return LATE if next_launch < end or next_launch - end > _LATENCY_NS else DEPENDENCY
    if waits.joined(int(s.launch_ns[call]), next_launch):
        return DEPENDENCY
    free = int(s.next_queue_ns[call]) <= since + slack
    if free and next_launch <= since and next_start >= since + _HIDDEN_SHARE * int(s.exposed_ns[call]):
        return CONNECTIONS
    return UNCLEAR


def _first_or_last(s: Situation, call: int, kinds: Int64, iteration: Int64) -> str:
    """Returns FIRST or LAST for the first or last call of siblings that are hidden otherwise, else DEPENDENCY.

    A single call just before the optimizer step counts as LAST.
    """
    siblings = np.flatnonzero((kinds == kinds[call]) & (iteration == iteration[call]))
    others = siblings[siblings != call]
    length = (s.end_ns - s.start_ns)[others]
    hidden = float(s.beside_ns[others].sum()) / max(int(length.sum()), 1)
    # Calls that queue behind others would be hidden if there were more compute.
    queued = s.since_ready_ns[others] > _HIDDEN_SHARE * length
    usually_hidden = len(others) > 0 and (hidden >= 0.3 or queued.mean() >= 0.5)
    # Whether all calls after it, or all before it, are exposed too.
    later, earlier = others[s.start_ns[others] > s.start_ns[call]], others[s.start_ns[others] < s.start_ns[call]]
    alone = [(s.beside_ns[o] <= _HIDDEN_SHARE * (s.end_ns[o] - s.start_ns[o])).all() for o in (later, earlier)]
    unready = (s.since_ready_ns[later] <= _HIDDEN_SHARE * (s.end_ns[later] - s.start_ns[later])).all()
    is_first, is_last = len(others) > 0 and bool(alone[1]), bool(alone[0] and unready)
    if usually_hidden:
        return FIRST if is_first else LAST if is_last else DEPENDENCY
    duration_ns = int(s.end_ns[call] - s.start_ns[call])
    just_before_optimizer = 0 <= int(s.before_optimizer_ns[call]) <= _LEFT_SHARE * duration_ns
    return LAST if len(others) == 0 and just_before_optimizer else DEPENDENCY
