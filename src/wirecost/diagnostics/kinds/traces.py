"""Codes of profiler traces.

The message of a diagnostic is its meaning with other punctuation (`Kind.message`).
"""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _info(code: str, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, Severity.INFO, Area.TRACES, meaning, remedy)


def _warning(code: str, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, Severity.WARNING, Area.TRACES, meaning, remedy)


def _data_loss(code: str, meaning: str, remedy: str | None = None) -> Kind:
    """Returns the kind of a warning that data is missing from the numbers."""
    return Kind(code, Severity.WARNING, Area.TRACES, meaning, remedy, loses_data=True)


KINDS = (
    _info(
        "annotation_op_inferred",
        "Collectives carry no arguments. Their operation is inferred from the order of the CPU annotations.",
    ),
    _info("bad_argument", "Arguments of collectives have impossible values. They are taken as unknown."),
    _data_loss("bad_time", "Events have no readable start time or duration. They are left out."),
    _warning(
        "bare_gpu_step",
        "Steps have a GPU annotation far shorter than the CPU step. The windows follow the GPU annotation, "
        "so these iterations cover a small part of the steps.",
        "take the CPU steps with --window cpu",
    ),
    _data_loss("broken_event", "Events are not valid JSON. They are left out."),
    _data_loss("broken_metadata", "Places outside the events are broken. Their content is unknown."),
    _info("bytes_unknown", "Collectives carry no sizes. Their bytes are unknown."),
    _data_loss(
        "clock_jump",
        "Events are more than an hour away from all others, or days long: the clock jumped, or their times "
        "are damaged. They are left out.",
    ),
    _info(
        "clock_offsets",
        "Clocks of ranks differ from the reference rank's clock, as the ends of their collectives show. Their "
        "times are corrected.",
    ),
    _info(
        "clocks_not_aligned",
        "Collectives end on one rank before they start on another, so the clocks of the ranks disagree. "
        "The shortest duration bounds the transfer.",
    ),
    _data_loss(
        "compressed_data_broken",
        "The compressed file is damaged or cut off. The data after the damage is missing.",
        "copy the file again, or profile again",
    ),
    _info(
        "cpu_only",
        "The trace has communication annotations on the CPU and no device events. The parts are those of "
        "the CPU's time line.",
    ),
    _data_loss(
        "cut_off",
        "Lists of events are not closed: the file is cut off. The events after the cut are missing.",
        "let the profiler finish the file, or copy it again",
    ),
    _info("cut_step", "Steps are cut by the end of the recording."),
    _info("cut_steps_left_out", "Steps that the recording cuts are left out of the breakdown."),
    _data_loss(
        "data_after_end",
        "More data follows the end of the trace, perhaps a second trace. It is not read.",
        "write each trace to a file of its own",
    ),
    _info("duplicate_event", "Events are exact duplicates. One of each is kept."),
    _data_loss("event_without_category", "Events have no category. They are left out."),
    _warning(
        "exposed_comm",
        "Communication runs while nothing computes. Waiting can't be told from moving data.",
        "send less, start collectives earlier so that computation hides them, and check the transport",
    ),
    _warning(
        "exposed_memory",
        "Only copies or fills run.",
        "pin host memory and copy with non_blocking=True on a stream of its own; keep what is copied every "
        "step on the device",
    ),
    _warning(
        "exposed_transfer",
        "Communication moves data while nothing computes.",
        "send less, start collectives earlier so that computation hides them, and check the transport",
    ),
    _warning(
        "exposed_unmatched",
        "Communication that can't be matched over the ranks runs while nothing computes.",
        "read the traces of all ranks of these groups, recorded over the same steps",
    ),
    _warning(
        "exposed_wait",
        "Ranks wait inside collectives for the last one to arrive while nothing computes.",
        "compare what the late ranks do before these collectives: input sizes, data loading, host load, clocks",
    ),
    _info(
        "first_collective",
        "Collectives are the first after the profiler started. Their skew is mostly start-up.",
        "profile more steps and leave out the first one",
    ),
    _data_loss(
        "graphs_opaque",
        "CUDA graph launches were profiled as a whole. What runs inside them is not in the parts.",
        "profile with --cuda-graph-trace=node",
    ),
    _warning(
        "idle",
        "The device has nothing to do: the host launches too late, loads data or synchronises.",
        "raise the micro-batch, capture CUDA graphs or use torch.compile, give the data loader more "
        "workers, and look for .item(), .cpu() and synchronize() in the step",
    ),
    _info("invalid_utf8", "Events have invalid UTF-8. They are kept, and the bytes are replaced."),
    _warning(
        "looks_like_communication",
        "Device events look like communication by their names. They count as computation or copies, because "
        "the trace has no other evidence.",
        "make them communication with --comm-pattern REGEX; --table kernels lists the class of each name",
    ),
    _info(
        "matched_by_order",
        "Collectives without a process group are matched over the ranks by their order. In a job with "
        "several process groups the match may be wrong.",
    ),
    _data_loss("negative_duration", "Events have a negative duration. They are left out."),
    _data_loss(
        "no_communication",
        "Ranks of a world larger than one have no communication. It was not recorded, or the names "
        "of its kernels are unknown.",
        "record communication, or name its kernels with --comm-pattern REGEX",
    ),
    _data_loss(
        "no_device_events",
        "Files have no device event. There is nothing to split.",
        "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    ),
    _info(
        "nsys_inferred",
        "Communication kernels come from an Nsight Systems export. Their operation is inferred from the "
        "name; process group and bytes are unknown.",
    ),
    _info("other_file", "Files are those of other tools. They are left out."),
    _data_loss(
        "out_of_range",
        "Events have times beyond 64-bit nanoseconds, or durations beyond 13 days. They are left out.",
    ),
    _info(
        "overlap_on_stream",
        "Kernels start before the one before them on the same stream ends, by programmatic launch or "
        "impossible durations.",
    ),
    _info("point_to_point", "The traces don't show the partners of sends and receives. Their wait is unknown."),
    _info(
        "rank_unknown",
        "The ranks of files or processes are unknown. They are numbered in their order.",
        "give the rank of each file with --rank FILE=RANK",
    ),
    _info("repaired_event", "Broken events are kept from their readable head. Their arguments are lost."),
    _data_loss(
        "second_event_list",
        "A file has further lists of events. They are left out.",
        "write each trace to a file of its own",
    ),
    _warning("several_devices", "One file has several devices. Each is counted as a rank of its own."),
    _info("step_repeated", "Steps appear more than once. The window of each name spans them."),
    _info("step_without_work", "Steps launched nothing on the device. They don't count as iterations."),
    _info(
        "stray_device",
        "A process touched devices that hardly worked: those of other ranks. Their events are left out.",
    ),
    _data_loss("stray_element", "Elements of the list of events are not events. They are left out."),
    _info("stray_separator", "Separators between events are missing or too many."),
    _info("sub_nanosecond", "Events have times finer than a nanosecond. Starts and ends are both rounded down."),
    _data_loss("unknown_category", "Events have an unknown category. They are left out."),
    _warning(
        "unmatched_collectives",
        "Collectives can't be matched over the ranks. Their wait is unknown.",
        "read the traces of all ranks of these groups, recorded over the same steps",
    ),
    _data_loss("unnamed_annotation", "Annotations have no name. They are left out."),
    _data_loss(
        "unnamed_event",
        "Device events have no name, so communication and computation can't be told apart. They are left out.",
    ),
    _data_loss(
        "unreadable",
        "Files can't be read. Their ranks are missing.",
        "copy these files again, or name only the others",
    ),
    _data_loss(
        "unsupported_phase",
        "Device or annotation events are not complete events (`ph` is not X). They are left out.",
    ),
    _info(
        "window_inferred",
        "There is no ProfilerStep. Iterations come from repeated annotations that tile the recording.",
    ),
    _info(
        "window_not_found",
        "Files have no annotation that the chosen window names. Their whole recording counts as one window.",
        "name an annotation that the trace holds, or leave --window out",
    ),
    _info("zero_duration", "Device events have no duration. They don't count."),
)
