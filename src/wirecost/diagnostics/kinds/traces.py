"""Codes of profiler traces."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity

_INFO, _WARNING = Severity.INFO, Severity.WARNING

_ENTRIES: tuple[tuple[str, Severity, str], ...] = (
    (
        "annotation_op_inferred",
        _INFO,
        "Collectives carry no arguments. Their operation is inferred from the order of the CPU annotations.",
    ),
    ("bad_argument", _INFO, "Arguments of collectives have impossible values. They are taken as unknown."),
    ("bad_time", _WARNING, "Events have no readable start time or duration. They are left out."),
    (
        "bare_gpu_step",
        _WARNING,
        "Steps have a GPU annotation far shorter than the CPU step. The windows follow the GPU annotation; "
        "`--window cpu` takes the CPU step.",
    ),
    ("broken_event", _WARNING, "Events are not valid JSON. They are left out."),
    ("broken_metadata", _WARNING, "Places outside the events are broken. What stood there is unknown."),
    ("bytes_unknown", _INFO, "Collectives carry no sizes. Their bytes are unknown."),
    (
        "clock_jump",
        _WARNING,
        "Events are more than an hour away from all others, or days long: the clock jumped, or their times are "
        "damaged. They are left out.",
    ),
    (
        "clock_offsets",
        _INFO,
        "Clocks of ranks differ from the reference rank's, by the ends of their collectives. The difference is "
        "taken out of their times.",
    ),
    (
        "clocks_not_aligned",
        _INFO,
        "Collectives end on one rank before they start on another, so the clocks of the ranks disagree. The "
        "shortest duration bounds the transfer.",
    ),
    (
        "compressed_data_broken",
        _WARNING,
        "The compressed file is damaged or cut off. What follows the place is missing.",
    ),
    (
        "cpu_only",
        _INFO,
        "The trace has communication annotations on the CPU and no device events. The parts are those of the "
        "CPU's time line.",
    ),
    ("cut_off", _WARNING, "Lists of events are not closed: the file is cut off. What follows is missing."),
    ("cut_step", _INFO, "Steps are cut by the end of the recording."),
    ("cut_steps_left_out", _INFO, "Steps that the recording cuts are no iterations of the breakdown."),
    (
        "data_after_end",
        _WARNING,
        "More data follows the end of the trace, perhaps a second trace. It is not read.",
    ),
    ("duplicate_event", _INFO, "Events are exact duplicates. One of each is kept."),
    ("event_without_category", _WARNING, "Events have no category. They are left out."),
    (
        "first_collective",
        _INFO,
        "Collectives are the first after the profiler started. Their skew is mostly start-up.",
    ),
    (
        "graphs_opaque",
        _WARNING,
        "CUDA graph launches were profiled as a whole. What runs inside them is not in the parts; profile with "
        "--cuda-graph-trace=node.",
    ),
    ("invalid_utf8", _INFO, "Events have invalid UTF-8. They are kept, and the bytes are replaced."),
    (
        "looks_like_communication",
        _WARNING,
        "Device events look like communication by their names and count as computation or copies, since nothing "
        "in the trace says so. `--comm-pattern REGEX` makes them communication.",
    ),
    (
        "matched_by_order",
        _INFO,
        "Collectives without a process group are matched over the ranks by their order. In a job with several "
        "process groups the match may be wrong.",
    ),
    ("negative_duration", _WARNING, "Events have a negative duration. They are left out."),
    (
        "no_communication",
        _WARNING,
        "Ranks of a world larger than one show no communication at all. It was not recorded, or its kernels have "
        "names that need `--comm-pattern`.",
    ),
    ("no_device_events", _WARNING, "Files have no device event. There is nothing to split."),
    (
        "nsys_inferred",
        _INFO,
        "Communication kernels come from an Nsight Systems export. Their operation is inferred from the name; "
        "process group and bytes are unknown.",
    ),
    ("other_file", _INFO, "Files are those of other tools. They are left out."),
    (
        "out_of_range",
        _WARNING,
        "Events have times beyond 64-bit nanoseconds, or durations beyond 13 days. They are left out.",
    ),
    (
        "overlap_on_stream",
        _INFO,
        "Kernels start before the one before them on the same stream ends, by programmatic launch or impossible "
        "durations.",
    ),
    (
        "point_to_point",
        _INFO,
        "Sends and receives have no partner that the traces tell. Their wait is unknown.",
    ),
    (
        "rank_unknown",
        _INFO,
        "Nothing tells the rank of files or processes. They are numbered in their order.",
    ),
    ("repaired_event", _INFO, "Broken events are kept from their readable head. Their arguments are lost."),
    ("second_event_list", _WARNING, "A file has further lists of events. They are left out."),
    ("several_devices", _WARNING, "One file has several devices. Each is counted as a rank of its own."),
    ("step_repeated", _INFO, "Steps appear more than once. The window of each name spans them."),
    ("step_without_work", _INFO, "Steps launched nothing on the device. They are no iterations."),
    (
        "stray_device",
        _INFO,
        "A process touched devices that hardly worked: those of other ranks. Their events are left out.",
    ),
    ("stray_element", _WARNING, "Elements of the list of events are no events. They are left out."),
    ("stray_separator", _INFO, "Separators between events are missing or too many."),
    (
        "sub_nanosecond",
        _INFO,
        "Events have times finer than a nanosecond. Starts and ends are both rounded down.",
    ),
    ("unknown_category", _WARNING, "Events have an unknown category. They are left out."),
    (
        "unmatched_collectives",
        _WARNING,
        "Collectives can't be matched over the ranks. Their wait is unknown.",
    ),
    ("unnamed_annotation", _WARNING, "Annotations have no name. They are left out."),
    (
        "unnamed_event",
        _WARNING,
        "Device events have no name, so communication and computation can't be told apart. They are left out.",
    ),
    ("unreadable", _WARNING, "Files can't be read. Their ranks are missing."),
    (
        "unsupported_phase",
        _WARNING,
        "Device or annotation events are no complete events (`ph` is not X). They are left out.",
    ),
    (
        "window_inferred",
        _INFO,
        "There is no ProfilerStep. Iterations come from repeated annotations that tile the recording.",
    ),
    (
        "window_not_found",
        _INFO,
        "Files have no annotation that the window asked for names. They count whole.",
    ),
    ("zero_duration", _INFO, "Device events have no duration. They count for nothing."),
)

KINDS = tuple(Kind(code, severity, Area.TRACES, meaning) for code, severity, meaning in _ENTRIES)
