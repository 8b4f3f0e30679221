"""Reads the checkpoints and validations that interrupt training between iterations.

Each rank appends a line to `events/rank-R.jsonl` in the experiment's directory:

    {"kind": "checkpoint", "after_iteration": 3, "start_ns": 1, "end_ns": 2, "bytes": null, "loss": null}

`kind` can also be "validation". Times are on the clock of the samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from wirecost.reading import read_result
from wirecost.study.store import StoreError

FOLDER = "events"


class EventKind(StrEnum):
    CHECKPOINT = "checkpoint"
    VALIDATION = "validation"


class Event(BaseModel):
    """One event on one rank; `bytes` is the number of written bytes, `loss` the loss of a validation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EventKind
    after_iteration: int
    start_ns: int
    end_ns: int
    bytes: NonNegativeInt | None = None
    loss: float | None = None


@dataclass(frozen=True)
class EventSpan:
    """One event over all ranks, from the first start to the last end."""

    kind: EventKind
    after_iteration: int
    start_ns: int
    end_ns: int


def read_events(directory: Path) -> dict[int, tuple[Event, ...]]:
    """Returns the events of an experiment by rank; empty if it has none.

    An incomplete last line, left by a killed rank, is ignored.

    Raises:
        StoreError: names the file and line that can't be read.
    """
    events = {}
    for path in (directory / FOLDER).glob("rank-*.jsonl"):
        if (name := re.fullmatch(r"rank-(\d+)\.jsonl", path.name)) is not None:
            events[int(name[1])] = tuple(_read(path))
    return dict(sorted(events.items()))


def event_spans(by_rank: dict[int, tuple[Event, ...]]) -> tuple[EventSpan, ...]:
    """Returns the events merged over all ranks, in order of time."""
    together: dict[tuple[EventKind, int], list[Event]] = {}
    for events in by_rank.values():
        for event in events:
            together.setdefault((event.kind, event.after_iteration), []).append(event)
    spans = [
        EventSpan(kind, after, min(e.start_ns for e in events), max(e.end_ns for e in events))
        for (kind, after), events in together.items()
    ]
    return tuple(sorted(spans, key=lambda s: s.start_ns))


def _read(path: Path) -> list[Event]:
    events = []
    text = read_result(path, StoreError)
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            first = error.errors()[0]
            reason = ": ".join([*map(str, first["loc"]), first["msg"]])[:200]
            raise StoreError(f"{path}: line {number} is no event ({reason})") from error
    return events
