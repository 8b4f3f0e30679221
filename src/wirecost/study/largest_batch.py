"""Finds the largest micro-batch that fits into memory: by prediction, then by bisection, within a few trials.

A trial is an experiment of its own. Trials that fit are results, and trials that don't are the out-of-memory
cells of a table. The search has no state besides the results in the store, so that a run that is resumed goes on
with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wirecost.breakdown import PeakMemory
from wirecost.costmodel.iteration import iterate_memory
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shape import shape_of
from wirecost.errors import WirecostError
from wirecost.spec import MOST_TRIALS, BatchSearch, Device, Experiment, load_spec, stack_named
from wirecost.study.manifest import CheckedFiles, DamageError
from wirecost.study.result import STATUS, Outcome, Status

LARGEST = 1 << 20
"""Largest micro-batch that is tried."""
_ANY_CLUSTER = "8xa100-25g"
"""A cluster for the formulas. Memory depends on none of its properties but the number of GPUs of a node."""


@dataclass(frozen=True)
class Trial:
    """A micro-batch that was tried.

    Attributes:
        fits: whether it trained. False if memory ran out.
        peak_bytes: peak memory of the fullest rank, if it trained and this is known.
    """

    micro_batch: int
    fits: bool
    peak_bytes: int | None = None


@dataclass(frozen=True)
class MemoryLine:
    """Memory of the fullest rank as a line over the micro-batch: `fixed_bytes + micro_batch * sequence_bytes`."""

    fixed_bytes: float
    sequence_bytes: float

    def largest(self, memory_bytes: int) -> int:
        """Returns the largest micro-batch that fits by this line; 0 if none does."""
        if self.sequence_bytes <= 0:
            return 0
        return max(0, min(LARGEST, math.floor((memory_bytes - self.fixed_bytes) / self.sequence_bytes)))

    def through(self, trials: Iterable[Trial]) -> MemoryLine:
        """Returns the line through the two largest measured peaks. With one of them, the slope is kept."""
        measured = sorted((t.micro_batch, t.peak_bytes) for t in trials if t.peak_bytes is not None)
        slope = self.sequence_bytes
        if len(measured) > 1:
            (first, low), (second, high) = measured[-2:]
            slope = (high - low) / (second - first) or slope
        if not measured or slope <= 0:
            return self
        micro_batch, peak = measured[-1]
        return MemoryLine(peak - slope * micro_batch, slope)


_LAST_STEP = 0.9
"""Share of the way to the expected micro-batch that the last trial goes, where only one other trial fitted.
By judgement, for predictions of memory that err by up to a tenth."""


def next_batch(
    trials: Iterable[Trial], memory_bytes: int | None, line: MemoryLine | None, start: int | None = None
) -> int | None:
    """Returns the micro-batch of the next trial; None when the search has ended.

    It has ended if the largest one that fits and the smallest one that doesn't are neighbours, or after
    `MOST_TRIALS`. The first trial is the predicted micro-batch. Measured peaks of memory then correct the
    prediction, and where it contradicts a trial, the middle between both ends is taken.

    Args:
        memory_bytes: memory of a rank. None if it is unknown.
        line: predicted memory of a rank. None if it can't be predicted.
        start: micro-batch of the first trial instead of the predicted one.
    """
    trials = list(trials)
    low = max((t.micro_batch for t in trials if t.fits), default=0)
    high = min((t.micro_batch for t in trials if not t.fits), default=None)
    if len(trials) >= MOST_TRIALS or (high is not None and high - low <= 1) or low >= LARGEST:
        return None
    expected = (
        line.through(trials).largest(memory_bytes) if line is not None and memory_bytes is not None else None
    )
    if not trials:
        return start or max(1, expected or 1)
    if high is None:
        # A prediction that is far too high isn't followed at once, because the trials are few.
        return min(LARGEST, max(low + 1, min(4 * low, expected if expected is not None else 2 * low)))
    if expected is not None and low < expected < high:
        if len(trials) == MOST_TRIALS - 1 and sum(t.fits for t in trials) == 1:
            # One peak doesn't tell how memory grows. The last trial should fit.
            return max(low + 1, low + math.floor(_LAST_STEP * (expected - low)))
        return expected
    if low == 0 and len(trials) > 1:
        # A trial that fits tells more than another one that doesn't: its peak of memory corrects the prediction.
        return 1 if len(trials) == MOST_TRIALS - 1 else max(1, high // 4)
    return (low + high) // 2


def largest(trials: Iterable[Trial]) -> int | None:
    """Returns the largest micro-batch that fits; None if none of those tried does."""
    return max((t.micro_batch for t in trials if t.fits), default=None)


def predicted_memory(experiment: Experiment) -> MemoryLine | None:
    """Returns the predicted memory of the fullest rank. None if the cost model doesn't describe the experiment."""
    with suppress(WirecostError):
        cluster = load_spec("cluster", _ANY_CLUSTER)
        placed = {"gpus_per_node": experiment.ranks_per_host, "nodes": experiment.hosts}
        stack = stack_named("engine-cuda" if experiment.device is Device.CUDA else "engine-cpu")
        checked = setup(
            experiment.workload,
            experiment.plan,
            cluster.model_copy(update=placed),
            stack=stack,
            gpus=experiment.ranks,
            micro_batch=1,
            global_batch=experiment.data_parallel_degree,
        )
        shape, layout = shape_of(experiment.workload), layout_of(checked)
        machine = machine_of(checked.cluster, stack, experiment.plan.precision, experiment.plan.matrix_precision)
        one, many = (
            float(iterate_memory(shape, replace(layout, micro_batch=size), machine).total) for size in (1.0, 65.0)
        )
        if math.isfinite(one) and many > one:
            return MemoryLine(one - (many - one) / 64, (many - one) / 64)
    return None


def trials_in(
    experiments: Path, search: BatchSearch, names: Iterable[str]
) -> tuple[list[Trial], list[Experiment]]:
    """Returns the trials of a search that are finished, and those that ended otherwise (failed, skipped, damaged).

    Args:
        experiments: directory of the results.
        names: names in it.
    """
    trials: list[Trial] = []
    others: list[Experiment] = []
    for experiment in _tried(search, names):
        directory = experiments / experiment.slug
        try:
            files = CheckedFiles(directory, experiment.slug)
            outcome = files.parse(STATUS, Outcome)
        except DamageError:
            others.append(experiment)
            continue
        if outcome.status is Status.DONE:
            trials.append(Trial(experiment.micro_batch, True, _peak_bytes(files, experiment)))
        elif outcome.status is Status.OOM:
            trials.append(Trial(experiment.micro_batch, False))
        else:
            others.append(experiment)
    return trials, others


def ran_out(experiments: Path, experiment: Experiment) -> bool:
    """Returns whether memory ran out in an experiment whose result is in a directory of results."""
    try:
        outcome = CheckedFiles(experiments / experiment.slug, experiment.slug).parse(STATUS, Outcome)
    except DamageError:
        return False
    return outcome.status is Status.OOM


def _tried(search: BatchSearch, names: Iterable[str]) -> list[Experiment]:
    """Returns the experiments of a search whose names are there, by micro-batch."""
    first = search.at(1)
    prefix = first.common_slug.rpartition("_b")[0]
    pattern = re.compile(re.escape(prefix) + r"_b([1-9]\d{0,8})_[0-9a-f]{10}")
    tried = []
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None and int(match[1]) % first.data_parallel_degree == 0:
            experiment = search.at(int(match[1]) // first.data_parallel_degree)
            if experiment.slug == name:
                tried.append(experiment)
    return sorted(tried, key=lambda e: e.micro_batch)


def _peak_bytes(files: CheckedFiles, experiment: Experiment) -> int | None:
    """Returns the peak memory of the fullest rank in bytes, with what the allocator of a GPU reserved. None if
    that of a rank is unknown.
    """
    peaks = []
    for rank in range(experiment.ranks):
        try:
            peak = files.parse(f"memory/rank-{rank}.json", PeakMemory)
        except DamageError:
            return None
        peaks.append(peak.reserved_bytes or peak.peak_bytes)
    return max(peaks)
