"""The result store: one directory for each finished experiment, published whole or not at all.

    STORE/study.yaml                 the study as last run
    STORE/corpus/                    token files
    STORE/networks/SLUG/             each network's benchmark (wirecost.study.networks)
    STORE/experiments/SLUG/          a finished experiment:
        experiment.yaml              everything needed to run it again
        environment.json             versions, hardware, commit
        link.json                    what the links gave, measured after shaping
        machine.json                 how busy the machine was before
        samples/rank-R.jsonl         every iteration of every rank, raw
        memory/rank-R.json           its peak of memory
        counters.jsonl               what every host sent and received over time
        traces/rank-R.json.gz        the profiled window, where there was one
        events/rank-R.jsonl          checkpoints and validation, where there were any
        logs/rank-R.log, cell.log    what the processes printed
        breakdown.json               the result (only when done)
        status.json                  done, oom, failed or skipped, with the reason

An experiment is built in a directory whose name starts with `.partial-` and renamed when it is finished, so
a study killed at any moment has lost no finished experiment and holds no half one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from wirecost.breakdown import Breakdown, OutOfMemory
from wirecost.errors import DeprecatedWarning, WirecostError
from wirecost.reading import read_result
from wirecost.spec import Experiment, Study, load, to_yaml

PARTIAL = ".partial-"

M = TypeVar("M", bound=BaseModel)


class Status(StrEnum):
    DONE = "done"
    OOM = "oom"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(BaseModel):
    """How an experiment ended. `log_tail` holds the last lines of the log that tells most; `memory` is there when
    memory ran out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None
    log_tail: tuple[str, ...] = ()
    seconds: float | None = None
    memory: OutOfMemory | None = None


@dataclass(frozen=True)
class Result:
    """A finished experiment as the store holds it; `breakdown` is there when `outcome` is done."""

    experiment: Experiment
    outcome: Outcome
    breakdown: Breakdown | None
    directory: Path


class StoreError(WirecostError):
    """A store that can't be used as asked."""


class Store:
    """A study's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.experiments = root / "experiments"
        self.corpus = root / "corpus"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the store for one run.

        Raises:
            StoreError: if another run holds it, or it can't be written, then or meanwhile.
        """
        try:
            self.experiments.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("a+")
        except OSError as error:
            raise StoreError(f"{self.root}: can't be written: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"{self.root}: another run is writing here; wait for it or use --out") from error
            try:
                yield
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise StoreError(
                    f"{error.filename or self.root}: can't be written: {error.strerror}; finished experiments "
                    "are kept, make room and go on with --resume"
                ) from error

    def save_study(self, study: Study) -> None:
        write_file(self.root / "study.yaml", to_yaml(study))

    def study(self) -> Study:
        """Raises SpecError or StoreError if the directory holds no study."""
        if not (self.root / "study.yaml").exists():
            raise StoreError(f"{self.root}: no study was run here (there is no study.yaml)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecatedWarning)  # nobody writes this file by hand
            return load(Study, self.root / "study.yaml")

    def is_finished(self, experiment: Experiment) -> bool:
        return (self.experiments / experiment.slug / "status.json").exists()

    def outcome(self, experiment: Experiment) -> Outcome:
        """Raises StoreError, naming the file, if it can't be read."""
        return read_json(Outcome, self.experiments / experiment.slug / "status.json")

    def sweep(self) -> None:
        """Removes what an earlier run left half done. Only under the lock."""
        for path in self.experiments.glob(f"{PARTIAL}*"):
            shutil.rmtree(path)

    def begin(self, experiment: Experiment) -> Path:
        """An empty directory to run an experiment in."""
        path = self.experiments / f"{PARTIAL}{experiment.slug}"
        if path.exists():
            shutil.rmtree(path)
        for part in ("samples", "logs"):
            (path / part).mkdir(parents=True)
        write_file(path / "experiment.yaml", to_yaml(experiment))
        write_file(path / "experiment.json", experiment.model_dump_json())
        return path

    def publish(self, experiment: Experiment, outcome: Outcome, breakdown: Breakdown | None) -> Path:
        """Makes an experiment finished, at once and durably."""
        partial = self.experiments / f"{PARTIAL}{experiment.slug}"
        final = self.experiments / experiment.slug
        if breakdown is not None:
            write_file(partial / "breakdown.json", breakdown.model_dump_json(indent=1))
        write_file(partial / "status.json", outcome.model_dump_json(indent=1))
        with self._replaced(experiment):
            partial.rename(final)
            _sync(self.experiments)
        return final

    def forget(self, experiment: Experiment) -> None:
        """Removes an experiment's result, if there is one. Only under the lock."""
        with self._replaced(experiment):
            pass

    @contextmanager
    def _replaced(self, experiment: Experiment) -> Iterator[None]:
        """Takes a result away in one step: one that is half removed would still look finished."""
        old = self.experiments / f"{PARTIAL}old-{experiment.slug}"
        with suppress(FileNotFoundError):
            (self.experiments / experiment.slug).rename(old)
        yield
        if old.exists():
            shutil.rmtree(old)

    def results(self) -> list[Result]:
        """Every finished experiment, in the study's order where the study has it.

        Raises:
            StoreError: naming the file, if one can't be read.
        """
        if not self.experiments.is_dir():
            raise StoreError(f"{self.root}: no study was run here (there is no 'experiments' directory)")
        order = {e.slug: n for n, e in enumerate(self.study().experiments())} if self._has_study() else {}
        found = [self._read(p.parent) for p in self.experiments.glob("[!.]*/status.json")]
        return sorted(found, key=lambda r: (order.get(r.directory.name, len(order)), r.directory.name))

    def _has_study(self) -> bool:
        return (self.root / "study.yaml").exists()

    def _read(self, directory: Path) -> Result:
        outcome = read_json(Outcome, directory / "status.json")
        experiment = load(Experiment, directory / "experiment.yaml")
        done = outcome.status is Status.DONE
        breakdown = read_json(Breakdown, directory / "breakdown.json") if done else None
        return Result(experiment, outcome, breakdown, directory)


def read_json(model: type[M], path: Path) -> M:
    """A result's file, checked.

    Raises:
        StoreError: naming the file.
    """
    try:
        return model.model_validate_json(read_result(path))
    except WirecostError as error:
        reason = str(error).removeprefix(f"{path}: ")
    except ValidationError as error:
        first = error.errors()[0]
        reason = ": ".join([*map(str, first["loc"]), first["msg"]])[:200]
    raise StoreError(
        f"{path}: can't be read as a result ({reason}); to run this experiment again, delete "
        f"{path.parent} and use --resume"
    )


def write_file(path: Path, text: str) -> None:
    """Replaces a file in one step, durably."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
