"""A strict reader of Chrome's JSON trace format, as ui.perfetto.dev takes it.

It follows the Trace Event Format: phases with their required fields, numeric ids of processes and threads, flows that
have a start, complete events of one thread that nest or follow each other.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

_PHASES = frozenset("XBEiICstfbenM")
Spans = list[tuple[int, int, str]]


def read_strictly(path: Path) -> dict[str, Any]:
    """Returns the document. Raises ValueError if it isn't well-formed."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    document = json.loads(data.decode("utf-8"), parse_constant=refuse, parse_float=Decimal)
    events = document["traceEvents"]
    if not isinstance(events, list) or not events:
        raise ValueError("no events")
    owners: dict[int, int] = {}
    for event in events:
        _check(event)
        if owners.setdefault(event["tid"], event["pid"]) != event["pid"] and event["tid"]:
            raise ValueError(f"thread {event['tid']} has two processes")
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    if not {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"} <= named:
        raise ValueError("threads without a name")
    return document


def _check(event: Any) -> None:
    if not isinstance(event, dict) or event.get("ph") not in _PHASES or not isinstance(event.get("name"), str):
        raise ValueError(f"no event: {event!r}"[:200])
    for key in ("pid", "tid"):
        if type(event.get(key)) is not int or not 0 <= event[key] < 2**31:
            raise ValueError(f"{key}: {event!r}"[:200])
    times = ["ts", "dur"] if event["ph"] == "X" else ["ts"]
    for key in times:
        if not isinstance(event.get(key), int | Decimal) or isinstance(event[key], bool):
            raise ValueError(f"{key}: {event!r}"[:200])
    if event["ph"] == "X" and event["dur"] < 0:
        raise ValueError(f"negative: {event!r}"[:200])
    if event["ph"] in "stfben" and not isinstance(event.get("id"), int | str):
        raise ValueError(f"no id: {event!r}"[:200])
    if not isinstance(event.get("args", {}), dict):
        raise ValueError(f"args: {event!r}"[:200])


def ns(value: int | Decimal) -> int:
    """Microseconds in nanoseconds; raises ValueError where it matters whether a reader cuts or rounds, in decimals or
    in doubles."""
    readings = {int(Decimal(value) * 1000), round(Decimal(value) * 1000), int(float(value) * 1000)}
    if len(readings) > 1:
        raise ValueError(f"{value} us is no whole number of ns")
    return readings.pop()


def tracks(document: dict[str, Any], category: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the added events of one category (`wirecost waits`) by the name of their process, in order of time."""
    names = {
        e["pid"]: e["args"]["name"]
        for e in document["traceEvents"]
        if e["ph"] == "M" and e["name"] == "process_name"
    }
    listed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        if event.get("cat") == category:
            listed[names[event["pid"]]].append(event)
    return {name: sorted(events, key=lambda e: e["ts"]) for name, events in listed.items()}


def overlapping(document: dict[str, Any], prefix: str = "wirecost") -> int:
    """Returns how many added events start before the previous one on their thread ends."""
    ends: dict[int, int] = {}
    count = 0
    for event in sorted((e for e in document["traceEvents"] if e.get("cat", "").startswith(prefix)),
                        key=lambda e: e["ts"]):  # fmt: skip
        start = ns(event["ts"])
        count += start < ends.get(event["tid"], start)
        ends[event["tid"]] = start + ns(event["dur"])
    return count
