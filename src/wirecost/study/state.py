"""The state of every experiment of a store: what runs, waits, is done, failed and why, and the time left."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from wirecost.launch.ranks import count_lines
from wirecost.spec import AnyExperiment
from wirecost.study.estimate import TimeLeft
from wirecost.study.index import Entry, Index, stamp_of
from wirecost.study.manifest import CheckedFiles, DamageError
from wirecost.study.order import in_run_order
from wirecost.study.result import STATUS, Outcome, Status
from wirecost.study.run_record import RunRecord
from wirecost.study.slurm import live_runs
from wirecost.study.store import PARTIAL, Store


class State(StrEnum):
    """The state of an experiment, finished or not."""

    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    DONE = "done"
    OOM = "oom"
    FAILED = "failed"
    SKIPPED = "skipped"
    DAMAGED = "damaged"


KILLED = "its run was killed; --resume starts it anew"
UNFINISHED = (State.RUNNING, State.WAITING, State.INTERRUPTED)


@dataclass(frozen=True)
class ExperimentState:
    """The state of one experiment.

    Attributes:
        seconds: time that it took, or has taken so far if it runs. None if it is unknown.
        iterations: iterations that its first rank has finished, if it runs.
        planned_iterations: iterations that it has with those of the warm-up. `min_time` may add some.
        reason: why it failed, was skipped, ran out of memory or can't be used.
        left_s: estimated time in seconds until it is finished, from its start if it waits. None if it is finished.
    """

    experiment: AnyExperiment
    state: State
    seconds: float | None = None
    iterations: int | None = None
    reason: str | None = None
    left_s: float | None = None

    @property
    def planned_iterations(self) -> int:
        return self.experiment.warmup + self.experiment.iterations


@dataclass(frozen=True)
class StudyState:
    """The states of all experiments of a study.

    Attributes:
        name: name of the study.
        experiments: their states, in the order in which they run.
        runs: the runs that work on them.
        left_s: estimated time in seconds that the unfinished ones need one after another.
    """

    name: str
    experiments: tuple[ExperimentState, ...]
    runs: tuple[RunRecord, ...]
    left_s: float

    def count(self, *states: State) -> int:
        """Returns the number of experiments in any of these states."""
        counts = Counter(each.state for each in self.experiments)
        return sum(counts[state] for state in states)


def read_state(root: Path) -> StudyState:
    """Returns the state of every experiment of the study in a store.

    Of results that the store's index doesn't have, the small file with the status is read. The index is completed,
    so that this is quick for thousands of experiments.
    `wirecost study check` reads everything.

    Raises:
        SpecError, StoreError: if no study was run here, or it can't be read.
        WirecostError: if Slurm doesn't answer.
    """
    store = Store(root)
    study = store.study()
    runs = live_runs(root)
    names = _names(store.experiments)
    time_left = TimeLeft()
    index = Index(root)
    experiments = in_run_order(study, store.planned(study))
    states = [_state(store, experiment, names, index, runs=bool(runs)) for experiment in experiments]
    index.save()
    for each in states:
        if each.state is State.DONE and each.seconds is not None:
            time_left.learn(each.experiment, each.seconds)
    states = [
        replace(each, left_s=_left_s(each, time_left)) if each.state in UNFINISHED else each for each in states
    ]
    return StudyState(study.name, tuple(states), tuple(runs), sum(each.left_s or 0.0 for each in states))


def _names(directory: Path) -> frozenset[str]:
    with suppress(OSError):
        return frozenset(os.listdir(directory))  # noqa: PTH208
    return frozenset()


def _state(
    store: Store, experiment: AnyExperiment, names: frozenset[str], index: Index, *, runs: bool
) -> ExperimentState:
    partial = f"{PARTIAL}{experiment.slug}"
    if partial in names:
        if not runs:
            return ExperimentState(experiment, State.INTERRUPTED, reason=KILLED)
        return _running(store.experiments / partial, experiment)
    if experiment.slug not in names:
        return ExperimentState(experiment, State.WAITING)
    directory = store.experiments / experiment.slug
    stamp = stamp_of(directory)
    if (entry := index.find(experiment.slug, stamp)) is not None:
        outcome = entry.outcome
    else:
        try:
            outcome = CheckedFiles(directory, experiment.slug).parse(STATUS, Outcome)
        except DamageError as error:
            return ExperimentState(experiment, State.DAMAGED, reason=str(error))
        index.add(Entry(experiment.slug, stamp, outcome))
    finished = {status: State(status.value) for status in Status}
    return ExperimentState(experiment, finished[outcome.status], outcome.seconds, reason=outcome.reason)


def _running(directory: Path, experiment: AnyExperiment) -> ExperimentState:
    samples = directory / "samples" / "rank-0.jsonl"
    try:
        # The clock may have been set back meanwhile.
        seconds = max(0.0, time.time() - (directory / "experiment.yaml").stat().st_mtime)
    except OSError:
        seconds = None
    iterations = count_lines(samples) if samples.exists() else 0
    return ExperimentState(experiment, State.RUNNING, seconds, iterations)


def _left_s(each: ExperimentState, time_left: TimeLeft) -> float:
    whole = time_left.seconds(each.experiment)
    if each.state is State.RUNNING and each.iterations and each.seconds is not None:
        # Its own pace says more than that of other experiments. `min_time` may add iterations.
        whole = max(whole, each.seconds * each.planned_iterations / each.iterations)
    return max(whole - each.seconds, 0.0) if each.state is State.RUNNING and each.seconds is not None else whole


def matching(states: Sequence[ExperimentState], wanted: Sequence[State]) -> list[ExperimentState]:
    """Returns the experiments in one of the wanted states; all if none is wanted."""
    return [each for each in states if not wanted or each.state in wanted]
