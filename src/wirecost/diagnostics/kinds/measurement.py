"""Codes of runs that wirecost's own engine measured."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.MEASUREMENT, meaning, remedy)


KINDS = (
    _kind(
        "busy_machine",
        Severity.WARNING,
        "Other programs used a considerable part of the processors when the experiment began, or while it ran. "
        "Its times are too long, above all those of computation.",
        "run the experiment again on a quiet machine",
    ),
    _kind(
        "counters_unreadable",
        Severity.WARNING,
        "The network counters of the run can't be read. Its use of the link is unknown.",
    ),
    _kind(
        "launch_bound",
        Severity.WARNING,
        "The device waited for the host to launch its kernels over most of an iteration. The iteration time is "
        "that of the host.",
        "a larger micro_batch or, in a plan, graphs: true keep the device busy",
    ),
    _kind(
        "measured_short",
        Severity.WARNING,
        "The measuring time is shorter than `min_time` asks for, because the number of iterations is limited or "
        "the timeout was near. The statistics rest on fewer samples.",
        "raise the experiment's timeout, or lower min_time",
    ),
    _kind(
        "network_not_benchmarked",
        Severity.WARNING,
        "The benchmark of the network before training failed. The report has no bandwidth and latency of it.",
    ),
    _kind(
        "ranks_trained_apart",
        Severity.ERROR,
        "The experiment has several ranks and recorded no collective. The ranks trained apart, so no number of "
        "the result means anything.",
        "look at logs/rank-R.log of the experiment: every rank must join the same process group",
    ),
    _kind(
        "shared_cores",
        Severity.WARNING,
        "Several ranks share a processor core. Computation is slower than on hosts of their own, so the "
        "communication share is a lower bound.",
        "run on a machine with a core for each rank, or with fewer ranks",
    ),
    _kind(
        "shared_gpu",
        Severity.ERROR,
        "Several ranks of a job share a GPU. They take turns on it, so no time is that of ranks with a GPU each: "
        "computation takes longer, and transfers wait for the GPU.",
        "run with as many GPUs as ranks, or with fewer hosts",
    ),
    _kind(
        "short_messages",
        Severity.WARNING,
        "Collectives are so small that part of each fits into the shaper's bucket. They look faster than the "
        "link.",
        "use a larger workload or fewer, larger messages, so that the link's rate decides",
    ),
    _kind(
        "tcp_retransmits",
        Severity.WARNING,
        "TCP sent a considerable share of its segments again. Communication takes longer than the rate of the "
        "link allows.",
        "run on a quieter machine or over a slower link",
    ),
)
