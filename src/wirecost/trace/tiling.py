"""Windows of the device from windows of the host: by the device events that were launched in them."""

from __future__ import annotations

import re

import numpy as np

from wirecost.trace.categories import KERNEL
from wirecost.trace.recorded import Int64, Recorded, among

Span = tuple[int, int]

# A step's window goes on to the next one's start unless the host paused between them for longer than usual, by
# this share of a step.
_PAUSE_SHARE = 0.1
# A stream that is ahead of the busiest stream by more than this share of a step doesn't define starts.
_AHEAD_SHARE = 0.01
_COMPLETE_SHARE = 0.95
_LAUNCH = re.compile(r"launch\w*kernel|kernellaunch", re.IGNORECASE)


def tiles(recorded: Recorded, spans: Int64) -> list[Span | None] | None:
    """Returns the window on the device of each span of the host, given as (n, 2) integer ns in order of start.

    A window runs from the first device event launched in its span to the first one launched in the next span. The
    last window, and one before a pause of the host, ends with its device events. Work that other streams run
    early, such as the next step's data, doesn't end a step: in that case the busiest stream defines the starts.

    Returns None if launches don't determine windows: no device event is launched in a span during which the device
    worked. A span without any device event has the window None.
    """
    launch = recorded.launch_ns
    if len(spans) == 0 or not (launch >= 0).any():
        return None
    device = recorded.device
    owner = _owners(launch, spans)
    if not _tells(recorded, spans, owner, launch):
        return None
    first, last = _extent(owner, device.start_ns, device.end_ns, len(spans))
    main = np.where(_main_stream(recorded, owner), owner, -1)
    main_first, main_last = _extent(main, device.start_ns, device.end_ns, len(spans))
    if _run_ahead(first, main_first, main_last):
        first = main_first
    paused = _paused(spans)
    device_spans: list[Span | None] = []
    for number in range(len(spans)):
        if first[number] == _NEVER:
            device_spans.append(None)
            continue
        after = next((n for n in range(number + 1, len(spans)) if first[n] != _NEVER), None)
        if after is None or paused[number:after].any():
            end = int(last[number])
            end = end if after is None else min(end, int(first[after]))
        else:
            end = int(first[after])
        device_spans.append((int(first[number]), max(end, int(first[number]))))
    return device_spans


def _paused(spans: Int64) -> np.ndarray:
    """Returns whether the host paused after each span but the last: longer than it usually does between spans."""
    gaps = spans[1:, 0] - spans[:-1, 1]
    if len(gaps) == 0:
        return np.zeros(0, dtype=bool)
    lengths = np.median(spans[:, 1] - spans[:, 0])
    return gaps > np.median(gaps) + _PAUSE_SHARE * max(lengths, np.median(np.diff(spans[:, 0])))


def launched_spans(recorded: Recorded, spans: Int64) -> list[Span | None]:
    """Returns for each span of the host, in order of start, the time from the first start to the last end of what
    it launched, the pause after it included."""
    device = recorded.device
    first, last = _extent(_owners(recorded.launch_ns, spans), device.start_ns, device.end_ns, len(spans))
    return [(int(a), int(b)) if a != _NEVER else None for a, b in zip(first, last, strict=True)]


def launched_in(recorded: Recorded, spans: Int64) -> list[Span | None] | None:
    """Returns for each span of the host the time from the first start to the last end of device events launched in
    it.

    Returns None if launches aren't known.
    """
    launch = recorded.launch_ns
    if len(spans) == 0 or not (launch >= 0).any():
        return None
    device = recorded.device
    known = launch >= 0
    device_spans: list[Span | None] = []
    for start, end in spans:
        inside = known & (launch >= start) & (launch <= end)
        device_spans.append(
            (int(device.start_ns[inside].min()), int(device.end_ns[inside].max())) if inside.any() else None
        )
    return device_spans


_NEVER = np.iinfo(np.int64).max


def _owners(launch: Int64, spans: Int64) -> Int64:
    """Returns the span in which each event was launched; -1 before the first and after the last span.

    Work launched in a pause between spans belongs to the span before it.
    """
    owner = np.searchsorted(spans[:, 0], launch, side="right") - 1
    owner[launch < 0] = -1
    owner[(owner == len(spans) - 1) & (launch > spans[-1, 1])] = -1
    return owner.astype(np.int64)


def _extent(owner: Int64, start: Int64, end: Int64, count: int) -> tuple[Int64, Int64]:
    """Returns (first start, last end) of each owner's events; _NEVER and -1 without any."""
    first = np.full(count, _NEVER, dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    rows = np.flatnonzero(owner >= 0)
    if len(rows) == 0:
        return first, last
    rows = rows[np.argsort(owner[rows], kind="stable")]
    ordered = owner[rows]
    heads = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    first[ordered[heads]] = np.minimum.reduceat(start[rows], heads)
    last[ordered[heads]] = np.maximum.reduceat(end[rows], heads)
    return first, last


def _tells(recorded: Recorded, spans: Int64, owner: Int64, launch: Int64) -> bool:
    """Returns whether no work of unknown launch began during a span of the host that launched nothing."""
    with_events = np.zeros(len(spans), dtype=bool)
    with_events[owner[owner >= 0]] = True
    if not with_events.any():
        return False
    unknown = np.sort(recorded.device.start_ns[launch < 0])
    begun = np.searchsorted(unknown, spans[:, 1]) - np.searchsorted(unknown, spans[:, 0])
    return not (begun[~with_events] > 0).any()


def _run_ahead(first: Int64, main_first: Int64, main_last: Int64) -> bool:
    """Returns whether steps usually begin, on some stream, while the main stream still works for the step
    before."""
    if len(first) < 2 or (main_first == _NEVER).any() or (first == _NEVER).any():
        return False
    lead = np.maximum(main_last[:-1] - first[1:], 0)
    return bool(np.median(lead) > _AHEAD_SHARE * np.median(np.diff(first)))


def incomplete(recorded: Recorded, spans: Int64) -> list[bool]:
    """Returns for each span of the host whether device events of its kernel launches are missing in the
    recording."""
    launches = recorded.launches
    kernels = np.array([bool(_LAUNCH.search(n)) for n in launches.names], dtype=bool)
    if len(launches) == 0 or not kernels.any():
        return [False] * len(spans)
    calls = np.flatnonzero(kernels[launches.name])
    recorded_calls = among(launches.correlation[calls], np.sort(recorded.device.correlation))
    begun = launches.start_ns[calls]
    flags = []
    for start, end in spans:
        inside = (begun >= start) & (begun < end)
        flags.append(bool(inside.any() and recorded_calls[inside].mean() < _COMPLETE_SHARE))
    return flags


def _main_stream(recorded: Recorded, owner: Int64) -> np.ndarray:
    """Returns which rows are kernels on the stream that computes longest."""
    device = recorded.device
    kernel = (device.kind == KERNEL) & ~device.comm & (owner >= 0)
    if not kernel.any():
        return np.zeros(len(owner), dtype=bool)
    length = np.bincount(device.stream[kernel], weights=(device.end_ns - device.start_ns)[kernel])
    return (device.stream == int(length.argmax())) & (device.kind == KERNEL) & ~device.comm
