"""Runs a study: one experiment after another, each in fresh, isolated processes."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from wirecost.launch.machines import Machines
from wirecost.spec import AnyExperiment, Device, JobExperiment, Study
from wirecost.storage import tells_of_fault
from wirecost.study.allocation import MACHINES, STEP, Allocation, OnMachines
from wirecost.study.estimate import TimeLeft
from wirecost.study.networks import benchmark, sites
from wirecost.study.one_experiment import run_one, skip
from wirecost.study.order import in_run_order
from wirecost.study.processes import Cells
from wirecost.study.progress import Progress, Silent, Watch
from wirecost.study.run_record import recorded_run
from wirecost.study.runnable import (
    check_installed,
    check_on_machines,
    check_runnable,
    gpu_memory_bytes,
    gpus_here,
    too_few_gpus,
)
from wirecost.study.store import Outcome, Result, Status, Store, StoreError

SUBMISSION_S = 300.0
"""Time that the submission of a study's jobs may take."""


@dataclass(frozen=True)
class Again:
    """Results of an earlier run that are not kept: their experiments run again.

    Attributes:
        failed: failed and skipped experiments.
        damaged: experiments whose results are damaged. Otherwise they are left out.
    """

    failed: bool = False
    damaged: bool = False


@dataclass(frozen=True)
class PartOfStudy:
    """A study of which only a part is run.

    Attributes:
        study: the part.
        whole: the study that the store has afterwards.
    """

    study: Study
    whole: Study


def run_study(
    study: Study | PartOfStudy,
    out: Path,
    *,
    resume: bool = False,
    again: Again = Again(),
    budget_s: float | None = None,
    progress: Progress | None = None,
    worker: Sequence[str] = (),
    place: Allocation | OnMachines | None = None,
) -> list[Result]:
    """Runs every experiment of a study that has no result in the store at `out`, and returns all usable results of
    the study. Networks without a stored benchmark are benchmarked first (`Study.benchmark`).

    Args:
        study: the study. Of a part of a study, the results of the whole are returned.
        resume: continue in a store that already has results.
        again: which results of an earlier run are replaced.
        budget_s: start no experiment that would probably end later than this many seconds from now. Another run
            with `resume` runs the remaining ones.
        worker: another command for a rank, called with the experiment's directory.
        place: where ranks run. With nodes of a batch system, the run works on the experiments that fit them, and
            shares the store with other runs that have such nodes. Between machines that the user names are native
            networks; emulated ones are on this machine. None is this machine.

    Raises:
        SpecError, UnsupportedError: before anything is started.
        StoreError: before anything is started, or when the storage fails. The experiment that met the fault is not
            recorded, and another run with `resume` continues.
    """
    study, whole = (study.study, study.whole) if isinstance(study, PartOfStudy) else (study, study)
    machines = place.machines if isinstance(place, OnMachines) else None
    allocation = place.allocation if isinstance(place, OnMachines) else place
    deadline = None if budget_s is None else time.monotonic() + budget_s
    progress = progress or Silent()
    _check(study, allocation, machines)
    if deadline is None and machines is None and allocation is not None:
        deadline = allocation.deadline()
    store = Store(out)
    memory_bytes = lru_cache(gpu_memory_bytes if study.device is Device.CUDA else lambda: None)

    def known() -> list[AnyExperiment]:
        experiments = in_run_order(study, store.planned(study, memory_bytes))
        return experiments if allocation is None else allocation.fitting(experiments)

    if not resume and store.is_used():
        raise StoreError(f"{out}: holds an earlier run; go on with --resume, or choose another --out")
    store.check_study_file(whole)
    with ExitStack() as stack:
        # A job may start before all jobs of its study are submitted.
        wait_s = SUBMISSION_S if isinstance(place, Allocation) else 0.0
        stack.enter_context(store.locked(shared=allocation is not None, wait_s=wait_s))
        stack.enter_context(recorded_run(out))
        if allocation is None:
            store.sweep()
        store.save_study(whole)
        experiments = known()
        planned = {e.slug for e in experiments}
        finished, damaged = _kept(store, planned, again, progress)
        todo = [e for e in experiments if e.slug not in finished | damaged]
        tokens = _prepare_corpus(study, store.corpus)
        time_left = TimeLeft()
        progress.study_started(len(experiments), len(planned & finished), time_left.total(todo))
        gpus = gpus_here() if study.device is Device.CUDA and allocation is None and machines is None else None
        if study.benchmark and (allocation is None or allocation.is_emulated):
            here = [e for e in todo if gpus is None or isinstance(e, JobExperiment) or e.ranks <= gpus]
            here = [e for e in here if machines is None or e.network.emulate is not None]
            benchmark(store, sites(here), lambda site, why: progress.network_measured(site.label, why))
        cells = stack.enter_context(Cells(out, worker))
        queue = _Queue(store, cells, tokens, gpus, allocation, machines, progress, time_left)
        queue.run(todo, len(planned & finished), deadline)
        # A trial for the largest batch may be followed by another one.
        while more := [e for e in known() if e.slug not in planned]:
            progress.experiments_added(len(more))
            queue.run(more, len(planned), deadline)
            planned |= {e.slug for e in more}
        if whole is not study:
            planned |= {e.slug for e in whole.experiments()}
        store.summaries()  # completes the index, so that the first report is quick
        return [r for r in store.contents().results if r.directory.name in planned - damaged]


def _check(study: Study, allocation: Allocation | None, machines: Machines | None) -> None:
    """Raises SpecError or UnsupportedError if a study can't be run there."""
    if machines is not None:
        check_on_machines(study, len(machines.hosts), allocation)
    elif allocation is None:
        check_runnable(study)
    else:
        check_installed(study)


@dataclass(frozen=True)
class _Queue:
    """Runs experiments one after another."""

    store: Store
    cells: Cells
    tokens: dict[int, Path]
    gpus: int | None
    allocation: Allocation | None
    machines: Machines | None
    progress: Progress
    time_left: TimeLeft

    def run(self, todo: Sequence[AnyExperiment], first: int, deadline: float | None) -> None:
        """Runs experiments until the deadline, except for those that another run claims or finishes meanwhile.

        Args:
            first: number of the first one among all experiments.
        """
        before = {experiment.slug: self.store.inode(experiment) for experiment in todo}
        for number, experiment in enumerate(todo):
            if deadline is not None and time.monotonic() + self.time_left.seconds(experiment) > deadline:
                return
            with ExitStack() as claim:
                if self.allocation is not None:
                    mine = claim.enter_context(self.store.claimed(experiment))
                    if not mine or self.store.inode(experiment) != before[experiment.slug]:
                        continue
                self.progress.experiment_started(first + number, experiment)
                outcome = self._run(experiment, todo[number + 1 :])
            if outcome.status is Status.DONE and outcome.seconds is not None:
                self.time_left.learn(experiment, outcome.seconds)
            self.progress.experiment_finished(experiment, outcome)

    def _run(self, experiment: AnyExperiment, rest: Sequence[AnyExperiment]) -> Outcome:
        watch = Watch(self.progress, experiment, rest, self.time_left)
        if isinstance(experiment, JobExperiment):
            return run_one(self.store, experiment, self.cells, watch, None, launcher=self._launcher(experiment))
        if self.gpus is not None and experiment.ranks > self.gpus:
            return skip(self.store, experiment, too_few_gpus(experiment.ranks, self.gpus))
        tokens = self.tokens[experiment.workload.text_vocabulary]
        return run_one(self.store, experiment, self.cells, watch, tokens, launcher=self._launcher(experiment))

    def _launcher(self, experiment: AnyExperiment) -> tuple[str, str] | None:
        """Returns name and content of the file that says which other launcher starts the ranks, if one does."""
        if experiment.network.emulate is not None:
            return None
        if self.machines is not None:
            return MACHINES, self.machines.to_json()
        return (STEP, "{}") if self.allocation is not None else None


def _kept(store: Store, planned: Collection[str], again: Again, progress: Progress) -> tuple[set[str], set[str]]:
    """Returns the names of the results that are kept, and of the damaged ones that are not run again. All files of
    the store are checked, so that no damage remains unreported.
    """
    contents = store.contents(every_byte=True)
    for damaged in contents.damaged:
        progress.damaged(damaged, damaged.name in planned, again.damaged and damaged.name in planned)
    finished: set[str] = set()
    replaced = {Status.FAILED, Status.SKIPPED} if again.failed else set()
    for result in contents.results:
        outcome = result.outcome
        # Earlier versions recorded a full disk as an experiment that failed.
        faulty = outcome.status is Status.FAILED and outcome.reason is not None and tells_of_fault(outcome.reason)
        if outcome.status not in replaced and not faulty:
            finished.add(result.directory.name)
    return finished, set() if again.damaged else {damaged.name for damaged in contents.damaged}


def _prepare_corpus(study: Study, folder: Path) -> dict[int, Path]:
    """Prepares token files for every workload; returns their paths by vocabulary size. A prepared corpus is its
    own token file."""
    from wirecost.corpus import is_prepared, load_tokens, prepare_tokens
    from wirecost.train.texts import text_length

    if study.models and is_prepared(study.data.corpus):
        return {workload.text_vocabulary: Path(study.data.corpus).absolute() for workload in study.models}
    paths: dict[int, Path] = {}
    for workload in study.models:
        size = workload.text_vocabulary
        if size not in paths:
            paths[size] = prepare_tokens(study.data.corpus, study.data.tokenizer, size, folder)
        load_tokens(paths[size], text_length(workload))
    return paths


def default_out(study: Study) -> Path:
    """Returns a study's default directory: `wirecost-runs/NAME` in the current directory."""
    return Path(os.curdir) / "wirecost-runs" / study.name
