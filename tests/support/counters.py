"""Counters, samples and events of an invented run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from wirecost.counters import Row
from wirecost.counters.jsonl import JsonlWriter

SECOND = 10**9


def write_counters(directory: Path, megabytes: Sequence[int], hosts: int = 2) -> None:
    """Writes a counter sample each second. In second i each host sends and receives `megabytes[i]`.

    It also writes an iteration of a second for each second but the fourth, which is a pause. The first iteration
    is warm-up.
    """
    writer = JsonlWriter(directory / "counters.jsonl", sparse=True)
    total = 0
    for second, step in enumerate([0, *megabytes]):
        total += step * 10**6
        writer.write(
            [Row(second * SECOND, 0, "ethernet", f"host{host}", total, total) for host in range(hosts)]
            + [Row(second * SECOND, 0, "cpu", "softirq", softirq_cores=0.1)]
        )
    writer.close()
    (directory / "samples").mkdir(exist_ok=True)
    seconds = [s for s in range(len(megabytes)) if s != 3]
    for rank in range(hosts):
        lines = [
            {"iteration": n, "warmup": n == 0, "start_ns": s * SECOND, "end_ns": (s + 1) * SECOND}
            for n, s in enumerate(seconds)
        ]
        (directory / "samples" / f"rank-{rank}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def write_events(directory: Path, rank: int, *events: tuple[str, int, int, int]) -> None:
    """Writes events given as (kind, after iteration, start, end) in nanoseconds."""
    (directory / "events").mkdir(exist_ok=True)
    lines = [
        {"kind": kind, "after_iteration": after, "start_ns": start, "end_ns": end, "bytes": 1, "loss": None}
        for kind, after, start, end in events
    ]
    (directory / "events" / f"rank-{rank}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
