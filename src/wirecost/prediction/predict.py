"""Predicts one iteration from specifications as a Breakdown with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wirecost.breakdown import Breakdown
from wirecost.costmodel.flops import model_flops
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.iteration import Iteration, iterate, iterate_memory
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.memory import Memory
from wirecost.costmodel.setup import Setup, layout_of, trained_share
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.workload_correction import corrected
from wirecost.errors import SpecError
from wirecost.prediction.breakdown import Modelled, as_breakdown

LONGEST_S, MOST_BYTES = 1e7, 1e18
"""Bounds of an iteration. A prediction beyond them comes from a mistyped number."""
_LEAST_SHOWN = 1e-4


@dataclass(frozen=True)
class Prediction:
    """A prediction with its inputs; `breakdown` is the part that is compared and stored."""

    setup: Setup
    shape: Shape
    layout: Layout
    machine: Machine
    times: Iteration
    memory: Memory
    breakdown: Breakdown

    @property
    def fits(self) -> bool:
        """Returns whether the job fits in the GPU's memory for certain."""
        return float(self.memory.total) <= self.machine.memory_bytes

    @property
    def may_fit(self) -> bool:
        """Returns whether the job fits at least with the formats and options that need the least memory."""
        return float(self.memory.least) <= self.machine.memory_bytes

    @property
    def fit(self) -> str:
        """Returns whether the job fits in memory as words: `fits`, `may not fit` or `does not fit`."""
        return "fits" if self.fits else "may not fit" if self.may_fit else "does not fit"

    @property
    def total_s(self) -> float:
        """Returns the iteration time in seconds."""
        return float(self.times.total_s)

    @property
    def comm_fraction(self) -> float:
        """Returns exposed communication / iteration time, as in a measurement: waits of pipeline stages
        included."""
        return float(self.times.comm_fraction)

    @property
    def mfu(self) -> float:
        """Returns model FLOPs utilization without recomputation (arXiv:2204.02311, appendix B)."""
        trained = trained_share(self.setup.workload, self.setup.plan.lora_rank)
        flops = float(model_flops(self.shape, batch=self.setup.global_batch, trained=trained))
        return flops / (self.total_s * self.setup.gpus * float(self.machine.attention_peak_flops))

    @property
    def tokens_per_s(self) -> float:
        """Returns the tokens of all ranks per second."""
        return self.setup.global_batch * self.setup.workload.sequence_length / self.total_s

    def by_time(self, rate: float) -> tuple[float, float]:
        """Returns the 90 % interval of a rate that is inversely proportional to the iteration time, as `mfu` and
        `tokens_per_s` are: low and high."""
        interval = self.breakdown.interval
        assert interval is not None
        work = rate * self.total_s * 1e9
        return work / interval.high_ns, work / interval.low_ns

    @property
    def tokens_per_s_range(self) -> tuple[float, float]:
        """Returns the 90 % interval of `tokens_per_s`."""
        return self.by_time(self.tokens_per_s)

    @property
    def mfu_range(self) -> tuple[float, float]:
        """Returns the 90 % interval of `mfu`. No GPU exceeds its peak."""
        low, high = self.by_time(self.mfu)
        return min(low, 1.0), min(high, 1.0)


def predict(setup: Setup, *, machine: Machine | None = None) -> Prediction:
    """Predicts one iteration of the slowest rank. `machine` replaces the one of the setup's specifications.

    Raises:
        SpecError: if the numbers of the specifications together give no possible iteration.
    """
    shape = shape_of(setup.workload)
    layout = layout_of(setup)
    if machine is None:
        machine = machine_of(setup.cluster, setup.stack, setup.plan.precision, setup.plan.matrix_precision)
        machine = corrected(machine, setup.stack, setup.workload, setup.micro_batch)
    with np.errstate(all="ignore"):
        times = iterate(shape, layout, machine)
        memory = iterate_memory(shape, layout, machine)
    _check_possible(setup, times, memory)
    breakdown = as_breakdown(setup, Modelled(layout, machine, times, memory))
    return Prediction(setup, shape, layout, machine, times, memory, breakdown)


def fraction_of(setup: Setup) -> float:
    """Returns the comm fraction alone, in a third of the time of `predict`.

    Raises:
        SpecError: if the numbers of the specifications together give no possible iteration.
    """
    machine = machine_of(setup.cluster, setup.stack, setup.plan.precision, setup.plan.matrix_precision)
    machine = corrected(machine, setup.stack, setup.workload, setup.micro_batch)
    with np.errstate(all="ignore"):
        share = float(iterate(shape_of(setup.workload), layout_of(setup), machine).comm_fraction)
    if not 0 <= share <= 1:
        predict(setup)
    return share


def _check_possible(setup: Setup, times: Iteration, memory: Memory) -> None:
    """Raises SpecError for results that require numbers far outside those of any machine."""
    if setup.global_batch * setup.workload.sequence_length >= MOST_BYTES:
        raise SpecError(f"global_batch: {setup.global_batch} sequences are more than any job trains on")
    total_s, total_bytes = float(times.total_s), float(memory.total)
    if not (0 < total_s < LONGEST_S and 0 <= total_bytes < MOST_BYTES):
        raise SpecError(
            "the numbers of this workload, plan, cluster and stack together give no possible iteration: "
            f"{total_s:.3g} s and {total_bytes:.3g} bytes"
            if math.isfinite(total_s) and math.isfinite(total_bytes)
            else "the numbers of this workload, plan, cluster and stack together give no finite iteration"
        )


def largest_micro_batch(setup: Setup, *, limit: int = 4096) -> int | None:
    """Returns the largest micro-batch that fits in memory; None if not even 1 does.

    Batches are multiples that the plan's ranks need; the global batch grows with them.
    """
    shape, layout = shape_of(setup.workload), layout_of(setup)
    machine = machine_of(setup.cluster, setup.stack, setup.plan.precision, setup.plan.matrix_precision)

    def fits(size: int) -> bool:
        trial = replace(layout, micro_batch=float(size))
        return float(iterate_memory(shape, trial, machine).total) <= machine.memory_bytes

    if not fits(1):
        return None
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def iteration_parts(prediction: Prediction) -> list[tuple[str, float]]:
    """Returns the parts of the predicted iteration with their seconds. They sum to it, but for parts that are left
    out because they take less than a ten-thousandth of it."""
    times = prediction.times
    parts = (
        ("compute", times.compute_s),
        ("waiting for launches", times.host_s),
        ("pipeline bubble", times.bubble_s),
        ("tensor parallel", times.tensor_s),
        ("context, expert parallel", times.context_expert_s),
        ("pipeline transfers", times.pipeline_s),
        ("gradients (exposed)", times.gradient_s),
        ("parameters (exposed)", times.parameter_s),
        ("tied embedding", times.embedding_sync_s),
        ("optimizer", times.optimizer_s),
        ("slowest node", times.straggler_s),
        ("other", times.other_s),
    )
    least_s = _LEAST_SHOWN * prediction.total_s
    return [(name, float(spent_s)) for name, spent_s in parts if float(spent_s) > least_s]


def memory_parts(prediction: Prediction) -> list[tuple[str, float]]:
    """Returns the parts of the memory of the fullest rank, in bytes."""
    pieces = ("weights", "gradients", "optimizer", "activations", "logits", "overhead")
    return [(name, float(getattr(prediction.memory, name))) for name in pieces]
