"""What was wrong with a trace: typed, counted, and said. Nothing that was left out goes unsaid."""

from __future__ import annotations

import msgspec

# Code -> what was found; how many is beside it.
MESSAGES = {
    "annotation_op_inferred": "collectives carry no arguments; their operation is inferred from the order of the "
    "CPU annotations",
    "bad_argument": "collective arguments can't be what they say and are taken as unknown",
    "bad_time": "events left out: no readable start time or duration",
    "bare_gpu_step": "steps have a GPU annotation far shorter than the CPU step; their windows follow it all the "
    "same (--window cpu takes the CPU step)",
    "broken_event": "broken events left out: not valid JSON",
    "broken_metadata": "broken places outside the events; what stood there is unknown",
    "bytes_unknown": "collectives carry no sizes: their bytes are unknown",
    "clock_jump": "events left out: more than an hour away from all others, or days long: the clock jumped, or "
    "their times are damaged",
    "clock_offsets": "ranks' clocks differ from the reference rank's by what their collectives' ends differ; it "
    "is taken out of their times",
    "clocks_not_aligned": "collectives end on one rank before they start on another: the ranks' clocks disagree, "
    "so the shortest duration bounds the transfer",
    "compressed_data_broken": "places where the compressed stream is damaged or cut off: what follows is missing",
    "cpu_only": "communication annotations on the CPU and no device events: the parts are of the CPU's time line",
    "cut_off": "lists of events are not closed: the file is cut off",
    "cut_step": "steps are cut by the end of the recording",
    "data_after_end": "more data follows the end of the trace (a second trace?); it was not read",
    "duplicate_event": "exact duplicates left out",
    "event_without_category": "events left out: no category",
    "first_collective": "collectives are the first after the profiler started: their skew is mostly start-up",
    "graphs_opaque": "CUDA graph launches were profiled as a whole: what runs inside them is not in the parts "
    "(profile with --cuda-graph-trace=node)",
    "invalid_utf8": "events kept with invalid UTF-8 replaced",
    "looks_like_communication": "device events look like communication by their names but count as compute or "
    "copies, since nothing in the trace says so (--comm-pattern REGEX makes them communication)",
    "matched_by_order": "collectives without a process group were matched over the ranks by their order; a job "
    "with several process groups may mislead that",
    "negative_duration": "events left out: negative duration",
    "no_communication": "ranks of a world larger than 1 show no communication at all: was it recorded?",
    "no_device_events": "files without a single device event: nothing to split",
    "nsys_inferred": "communication kernels from an Nsight Systems export: operation inferred from the name, "
    "process group and bytes unknown",
    "out_of_range": "events left out: times beyond 64-bit nanoseconds, or durations beyond 13 days",
    "overlap_on_stream": "kernels start before the one before them on the same stream ends (programmatic "
    "launch, or impossible durations)",
    "point_to_point": "sends and receives have no partner that the traces tell: their wait is unknown",
    "rank_unknown": "ranks are numbered in the order of files and processes, since nothing tells them",
    "repaired_event": "broken events kept from their readable head; their arguments are lost",
    "second_event_list": "further lists of events in one file left out",
    "several_devices": "devices in one file, each counted as a rank of its own",
    "step_without_work": "steps launched nothing on the device and are no iterations",
    "step_repeated": "steps appear more than once; each name's window spans them",
    "stray_element": "elements of the event list are no events",
    "stray_device": "events of devices that hardly worked left out (another rank's, which this process touched)",
    "stray_separator": "separators between events are missing or too many",
    "sub_nanosecond": "events have times finer than a nanosecond; starts and ends are both rounded down",
    "unknown_category": "events of unknown category left out",
    "unmatched_collectives": "collectives could not be matched over the ranks",
    "unnamed_event": "device events left out: no name, so communication and compute can't be told apart",
    "unnamed_annotation": "annotations left out: no name",
    "other_file": "files of other tools left out",
    "unreadable": "files could not be read",
    "unsupported_phase": "device or annotation events left out: no complete event (ph is not X)",
    "window_inferred": "iterations come from repeated annotations that tile the recording, since there is no "
    "ProfilerStep",
    "window_not_found": "files have no annotation that the asked-for window names; they count whole",
    "zero_duration": "device events have no duration and count for nothing",
}

# Codes that tell of data that is missing from the answer, not only of a remark on it.
LOSSES = frozenset(
    [
        "bad_time",
        "broken_event",
        "broken_metadata",
        "clock_jump",
        "compressed_data_broken",
        "cut_off",
        "data_after_end",
        "event_without_category",
        "negative_duration",
        "out_of_range",
        "second_event_list",
        "stray_element",
        "unknown_category",
        "unnamed_annotation",
        "unnamed_event",
        "unreadable",
        "unsupported_phase",
        "no_device_events",
        "no_communication",
        "graphs_opaque",
    ]
)


class Problem(msgspec.Struct, frozen=True):
    """One kind of problem in one file. `loss` says whether data is missing from the answer because of it."""

    code: str
    count: int
    message: str

    @property
    def loss(self) -> bool:
        return self.code in LOSSES


class Problems:
    """Counts problems by code; `detail` adds what only the finder knows (the first one stays)."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._details: dict[str, str] = {}

    def add(self, code: str, count: int = 1, detail: str = "") -> None:
        if count <= 0:
            return
        if code not in MESSAGES:
            raise KeyError(code)
        self._counts[code] = self._counts.get(code, 0) + int(count)
        if detail:
            self._details.setdefault(code, detail)

    def copy(self) -> Problems:
        """Returns the same counts, to be counted on apart."""
        other = Problems()
        other._counts, other._details = dict(self._counts), dict(self._details)
        return other

    def count(self, code: str) -> int:
        return self._counts.get(code, 0)

    def listed(self) -> list[Problem]:
        """Returns losses first, then by count."""
        found = [
            Problem(
                code,
                n,
                MESSAGES[code] + (f" ({self._details[code]})" if code in self._details else ""),
            )
            for code, n in self._counts.items()
        ]
        return sorted(found, key=lambda p: (not p.loss, -p.count, p.code))
