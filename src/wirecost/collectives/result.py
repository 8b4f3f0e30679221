"""The result of a benchmark, of wirecost or another tool: one row for each collective, size and mode."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.request import BenchRequest, Mode

P95_SAMPLES, P99_SAMPLES = 20, 100
"""Least number of messages for a percentile. With fewer, it would equal the slowest message."""
BUCKET_SHARE, BUSY_SHARE = 0.025, 0.5
"""`BUCKET_SHARE` is the largest share of a message's bytes that a shaper's bucket may hold. Each end of a link has
one, so 2.5 % each make 5 % of the time.
"""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Model):
    """One measurement.

    `time_ns` is one message's time in a stream of them: the median over `rounds_ns`. Percentiles are over single
    messages. If the ranks share a clock, a message lasts from the last rank's arrival to the last rank's end; else
    its duration is the shortest over the ranks (the longest for a rooted collective). `wait_ns` is the median time
    for which a message's first rank waited for its last. With several groups at once, all values are the slowest
    group's, and `groups_ns` has each group's time. None is unknown.
    """

    collective: str
    size_bytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    mode: Mode
    ranks: int
    time_ns: float
    algbw_Bps: float | None
    busbw_Bps: float | None
    wrong: int | None = None
    messages: int | None = None
    rounds_ns: tuple[float, ...] = ()
    groups_ns: tuple[float, ...] = ()
    p50_ns: float | None = None
    p95_ns: float | None = None
    p99_ns: float | None = None
    wait_ns: float | None = None
    unshaped: bool = False
    """Whether the shaper's bucket absorbs so much of the sent data that the row doesn't measure the capped rate.
    """


class BenchNetwork(_Model):
    """The network of a benchmark.

    `transport` is the transport that NCCL's log proves, in the words of `wirecost transport`, and `reported` the
    one in NCCL's words; None if nothing reports it. `doubt` is a text if the transport isn't the one that the
    network should have.
    """

    name: str | None
    emulated: bool | None
    nominal_rate_bps: float | None = None
    measured_rate_bps: float | None = None
    round_trip_ns: int | None = None
    unshaped_bytes: int | None = None
    transport: str | None = None
    reported: tuple[str, ...] = ()
    doubt: str | None = None


def combine(
    request: BenchRequest, network: BenchNetwork, case: dict[str, Any], ranks: Sequence[dict[str, Any]]
) -> Row:
    """Returns the row of one case, from every rank's samples."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for sample in ranks:
        if sample["group"] is not None:
            groups.setdefault(sample["group"], []).append(sample)
    collective = COLLECTIVES.get(case["collective"])
    # A root, or a rank that only sends, finishes before the others.
    bound = max if collective and collective.rooted else min
    timed = {number: _group_times(members, bound) for number, members in sorted(groups.items())}
    groups_ns = tuple(statistics.median(t["rounds"]) for t in timed.values())
    slowest = max(timed.values(), key=lambda t: statistics.median(t["rounds"]))
    time_ns = max(groups_ns)
    messages = sorted(slowest["messages"])
    size, n = case["size_bytes"], request.group_size
    checks = [s["wrong"] for members in groups.values() for s in members]
    algbw = size / time_ns * 1e9 if size and time_ns else None
    factor = collective.bus_factor(n) if collective else None
    return Row(
        collective=case["collective"],
        size_bytes=size,
        count=collective.shown_count(size // request.element.item_bytes, n) if collective else 0,
        dtype=request.element.name,
        redop=str(request.redop) if collective and collective.reduces else None,
        root=0 if collective and collective.rooted else None,
        mode=Mode(case["mode"]),
        ranks=n,
        time_ns=time_ns,
        algbw_Bps=algbw,
        busbw_Bps=algbw * factor if algbw and factor else None,
        wrong=None if None in checks or collective is None else sum(checks),
        messages=len(messages),
        rounds_ns=tuple(slowest["rounds"]),
        groups_ns=groups_ns,
        p50_ns=percentile(messages, 50),
        p95_ns=percentile(messages, 95) if len(messages) >= P95_SAMPLES else None,
        p99_ns=percentile(messages, 99) if len(messages) >= P99_SAMPLES else None,
        wait_ns=statistics.median(slowest["waits"]),
        unshaped=bool(factor) and _escapes(network, size * factor, len(messages), time_ns, slowest),
    )


def _group_times(members: list[dict[str, Any]], bound: Callable[[Iterable[float]], float]) -> dict[str, Any]:
    """Returns one group's times in ns: each round's time for a message, each message's time and wait.

    Args:
        bound: selects among the ranks' own times, if they share no clock, the one that is nearest to the
            transfer's.
    """
    per_run = members[0]["messages_per_run"]
    per_round = members[0]["per_round"]
    rounds, messages, waits = [], [], []
    shared = members[0]["common_clock"]
    if shared:
        for k in range(len(members[0]["rounds_ns"])):
            first, last = k * per_round, (k + 1) * per_round - 1
            span = max(m["ends_ns"][last] for m in members) - max(m["starts_ns"][first] for m in members)
            rounds.append(span / per_round / per_run)
    else:
        # The last rank to start didn't wait for the others, so its span is that of the messages.
        spans = zip(*(m["rounds_ns"] for m in members), strict=True)
        rounds = [bound(span) / per_round / per_run for span in spans]
    for i in range(len(members[0]["starts_ns"])):
        starts, ends = [m["starts_ns"][i] for m in members], [m["ends_ns"][i] for m in members]
        durations = [end - start for start, end in zip(starts, ends, strict=True)]
        if shared:
            last_start = max(starts)
            # A rank can finish before another starts: a broadcast's root only sends.
            messages.append(max(max(ends) - last_start, 0) / per_run)
            waits.append(max(min(last_start, e) - s for s, e in zip(starts, ends, strict=True)))
        else:
            messages.append(bound(durations) / per_run)
            waits.append(max(durations) - min(durations))
    return {
        "rounds": rounds,
        "messages": messages,
        "waits": waits,
        "per_run": per_run,
        "drained": all(m["drained"] for m in members),
    }


def _escapes(
    network: BenchNetwork, sent_bytes: float, messages: int, time_ns: float, timed: dict[str, Any]
) -> bool:
    """Returns whether the shaper's bucket hides the cap: it holds a relevant part of the data that the link
    carried without a pause, and the link would have been busy without it.

    A stream empties the bucket once. In a ping-pong each end's bucket refills while the other end sends.
    """
    bucket, rate = network.unshaped_bytes, network.measured_rate_bps
    if bucket is None or rate is None or timed["drained"]:
        return False
    carried = sent_bytes if timed["per_run"] > 1 else sent_bytes * messages
    return bucket > BUCKET_SHARE * carried and sent_bytes * 8e9 / time_ns > BUSY_SHARE * rate


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Returns the nearest-rank percentile of sorted values, which is always one of them."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def is_barrier(row: Row) -> bool:
    return row.collective == BARRIER
