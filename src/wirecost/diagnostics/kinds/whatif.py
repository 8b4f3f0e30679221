"""Codes of what-if questions."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.WHATIF, meaning, remedy)


KINDS = (
    _kind(
        "few_steps",
        Severity.WARNING,
        "Fewer than three steps are recorded. The first step after the profiler starts is not a steady one, and "
        "what one step suggests is not checked against others.",
        "record at least four steps",
    ),
    _kind(
        "gradient_sizes_estimated",
        Severity.WARNING,
        "The sizes of gradients can't be told from the trace. The bytes of a bucket are shared out evenly among "
        "its gradients.",
        "record a run without gradient_as_bucket_view",
    ),
    _kind(
        "latency_learned",
        Severity.INFO,
        "The network states no latency. What a message takes besides its bytes is that of small messages in the "
        "recording.",
        "state it with --latency, or benchmark the network (wirecost bench)",
    ),
    _kind(
        "network_not_measured",
        Severity.INFO,
        "The network's transfer times come from its nominal rate.",
        "benchmark the network (wirecost bench), calibrate with the result, and name it with --calibration",
    ),
    _kind(
        "ranks_missing",
        Severity.WARNING,
        "Traces of some ranks of the job are missing. What they make the others wait for stays as recorded.",
        "give the traces of all ranks",
    ),
    _kind(
        "sockets_share_processor",
        Severity.WARNING,
        "The network is TCP without a cap. Sockets need the processor, which the job needs too, so that a "
        "benchmark's rate is not reached.",
        "record one job on this network, and take its rate (`whatif` prints the rate that it fits)",
    ),
    _kind(
        "step_time_contradicts",
        Severity.WARNING,
        "The step time that was stated can't be reached by any speed of the host. All times are scaled by what "
        "remains.",
        "state the step time of this very job without the profiler",
    ),
    _kind(
        "transfer_unknown",
        Severity.WARNING,
        "The bytes of some collectives are not recorded. Their transfer lies between nothing and what it took in "
        "the recording.",
    ),
    _kind(
        "whatif_steps_left_out",
        Severity.INFO,
        "Some ranks recorded further steps, or lack the end of one. The steps that all ranks have are replayed.",
        "record the same steps on all ranks",
    ),
    _kind(
        "whatif_truncated",
        Severity.WARNING,
        "The end of a trace file is missing. What it holds is replayed.",
        "copy the file again, or record it again",
    ),
    _kind(
        "whatif_unmatched",
        Severity.WARNING,
        "No communication is matched over the ranks. Each rank is replayed alone, and its waits stay as recorded.",
        "give the traces of one run, recorded in the same steps on all ranks",
    ),
    _kind(
        "whatif_cut",
        Severity.WARNING,
        "A recorded step is cut off. Its end is missing from the replay.",
        "let the profiler record whole steps",
    ),
)
