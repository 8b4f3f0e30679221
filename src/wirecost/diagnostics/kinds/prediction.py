"""Codes of predictions."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.PREDICTION, meaning, remedy)


KINDS = (
    _kind(
        "compression_estimated",
        Severity.INFO,
        "Gradients are compressed. The time to compress them is estimated from the memory traffic of the passes "
        "that wirecost's own engine makes.",
    ),
    _kind(
        "extrapolated",
        Severity.WARNING,
        "A dimension of the job lies outside the range that the stack was calibrated on. The interval is widened.",
        "calibrate the stack on runs nearer to this job",
    ),
    _kind(
        "memory_uncertain",
        Severity.WARNING,
        "The job may not fit in the memory of its GPUs. It does with the smallest formats that the stack offers "
        "for gradients, optimizer states and logits and without fragmentation, and doesn't with the usual ones.",
        "choose these formats, shrink the micro-batch, recompute, or shard more",
    ),
    _kind(
        "model_approximated",
        Severity.WARNING,
        "The model has a feature that changes the numbers and that the formulas don't describe, like attention "
        "sinks. The message names it.",
    ),
    _kind(
        "not_benchmarked",
        Severity.WARNING,
        "The network was not benchmarked. Its nominal rate is used, less what the protocols add.",
        "benchmark the network (wirecost bench), and calibrate with the result",
    ),
    _kind(
        "out_of_memory",
        Severity.ERROR,
        "The job needs more memory than the GPU has, even with the smallest formats. It can't run as planned, and "
        "the predicted time is that of a GPU with enough memory.",
        "shrink the micro-batch, recompute, or shard more; `wirecost plan` finds the plans that fit",
    ),
    _kind(
        "uncalibrated_gpu",
        Severity.WARNING,
        "The GPU was never fitted to measurements. Its datasheet and usual efficiencies are used, and the "
        "interval is widened.",
        "calibrate it on your own runs (wirecost calibrate)",
    ),
    _kind(
        "uncalibrated_model",
        Severity.WARNING,
        "The model has a part, like a sliding window or multi-token prediction, whose formulas were not compared "
        "with measurements that tell it apart. The interval is widened.",
        "measure one job with this model, and compare (wirecost validate)",
    ),
    _kind(
        "uncalibrated_network",
        Severity.WARNING,
        "The network link was never fitted to measurements. The interval is widened.",
        "calibrate it on a benchmark (wirecost bench, wirecost calibrate)",
    ),
    _kind(
        "uncalibrated_plan",
        Severity.WARNING,
        "The plan has a strategy whose formulas were never compared with measurements of jobs. The interval is "
        "widened.",
        "measure one job with this strategy, and compare (wirecost validate)",
    ),
    _kind(
        "uncalibrated_stack",
        Severity.WARNING,
        "The software stack was never fitted to measurements. Its values are judgement.",
        "calibrate it on your own runs (wirecost calibrate)",
    ),
)
