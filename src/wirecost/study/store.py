"""The result store: one directory for each finished experiment, published whole or not at all.

    STORE/study.yaml                 the study as last run
    STORE/index.jsonl                what reports need of every result (wirecost.study.index)
    STORE/corpus/                    token files
    STORE/networks/SLUG/             each network's benchmark (wirecost.study.networks)
    STORE/experiments/SLUG/          a finished experiment:
        experiment.yaml              everything needed to run it again
        environment.json             versions, hardware, commit
        link.json                    the links' rates, measured after shaping
        machine.json                 how much other programs used it, before and during the run
        samples/rank-R.jsonl         every iteration of every rank, raw
        memory/rank-R.json           its peak of memory
        counters.jsonl               what every host sent and received over time
        traces/rank-R.json.gz        the profiled window, where there was one
        steps/NAME.jsonl             of a command: what its ranks recorded about their iterations
        events/rank-R.jsonl          checkpoints and validation, where there were any
        logs/rank-R.log, cell.log    what the processes printed
        breakdown.json               the result (only when done)
        status.json                  done, oom, failed or skipped, with the reason
        manifest.json                whose files these are, their sizes and SHA-256 (wirecost.study.manifest)

An experiment is built in a directory whose name starts with `.partial-` and renamed when it is finished. A study
that is killed at any moment therefore keeps all finished experiments and has no incomplete one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.errors import SpecError
from wirecost.spec import AnyExperiment, Study, to_yaml
from wirecost.storage import sync_directory, write_file
from wirecost.study.contents import Contents, R, read_all
from wirecost.study.index import INDEX, Entry, Index, stamp_of
from wirecost.study.manifest import MANIFEST, write_manifest
from wirecost.study.removal import remove
from wirecost.study.result import (
    BREAKDOWN,
    EXPERIMENT,
    FORMAT_VERSION,
    STATUS,
    Damaged,
    Outcome,
    Result,
    ResultSummary,
    Status,
    SummaryReader,
    read_result,
)
from wirecost.study.schedule import scheduled
from wirecost.study.store_errors import DamagedResultWarning, StoreError
from wirecost.study.store_locks import CLAIMS, claimed, locked
from wirecost.study.study_file import StudyFile

PARTIAL = ".partial-"

__all__ = [
    "Contents",
    "Damaged",
    "DamagedResultWarning",
    "Outcome",
    "Result",
    "ResultSummary",
    "Status",
    "Store",
    "StoreError",
]


class Store:
    """A study's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.experiments = root / "experiments"
        self.corpus = root / "corpus"
        self._study_file = StudyFile(root)

    def locked(self, *, shared: bool = False, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Locks the store for one run. See `wirecost.study.store_locks.locked`."""
        return locked(self.root, self.experiments, shared=shared, wait_s=wait_s)

    def claimed(self, experiment: AnyExperiment) -> AbstractContextManager[bool]:
        """Claims an experiment among runs that share the store. See `wirecost.study.store_locks.claimed`."""
        return claimed(self.root, experiment.slug)

    def inode(self, experiment: AnyExperiment) -> int | None:
        """Returns a number that changes when an experiment's result is replaced; None without a result."""
        with suppress(OSError):
            return (self.experiments / experiment.slug).stat().st_ino
        return None

    def is_used(self) -> bool:
        """Returns whether an earlier run left files here. Raises StoreError if the directory can't be read."""
        try:
            return bool(os.listdir(self.experiments))  # noqa: PTH208
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{self.experiments}: can't be read ({error.strerror})") from error

    def save_study(self, study: Study) -> None:
        """Writes the study, unless the same study lies here already, perhaps in a user's own words.

        Raises:
            OSError: if it can't be written.
        """
        self._study_file.save(study)

    def check_study_file(self, study: Study) -> None:
        """Checks that a first run replaces no file of the user's.

        Raises:
            StoreError: if no study was run here, and another study.yaml lies here.
        """
        self._study_file.check(study, was_run=os.path.lexists(self.experiments))

    def has_study(self) -> bool:
        """Returns whether there is a stored study, readable or not."""
        return self._study_file.exists()

    def study(self) -> Study:
        """Returns the stored study. Raises SpecError or StoreError if the directory has none."""
        return self._study_file.read()

    def check_output(self, path: Path) -> None:
        """Checks that a report may be written to a file or folder.

        Raises:
            StoreError: if it belongs to the results.
        """
        root = self.root.resolve()
        own = (*(root / name for name in ("study.yaml", ".lock", INDEX)), self.experiments.resolve())
        if any(path.resolve().is_relative_to(place) for place in (*own, self.corpus.resolve())):
            raise StoreError(f"{path}: belongs to the study's results; name another one to write")

    def planned(self, study: Study, memory_bytes: Callable[[], int | None] = lambda: None) -> list[AnyExperiment]:
        """Returns the experiments of a study that are known now (see `scheduled`)."""
        return scheduled(study, self.experiments, memory_bytes)

    def is_finished(self, experiment: AnyExperiment) -> bool:
        return (self.experiments / experiment.slug / STATUS).exists()

    def sweep(self) -> None:
        """Removes incomplete files of an earlier run. Requires the lock.

        Raises:
            StoreError: names the file that can't be removed.
        """
        for path in self.experiments.glob(f"{PARTIAL}*"):
            remove(path)
        remove(self.root / CLAIMS)  # nobody holds one: this run has the store to itself

    def begin(self, experiment: AnyExperiment) -> Path:
        """Creates and returns an empty directory for an experiment's run. Raises StoreError or OSError."""
        path = self.experiments / f"{PARTIAL}{experiment.slug}"
        remove(path)
        for part in ("samples", "logs"):
            (path / part).mkdir(parents=True)
        write_file(path / EXPERIMENT, to_yaml(experiment))
        write_file(path / "experiment.json", experiment.model_dump_json())
        return path

    def publish(self, experiment: AnyExperiment, outcome: Outcome, breakdown: Breakdown | None) -> Path:
        """Publishes a finished experiment atomically and durably; returns its directory.

        Raises:
            OSError: names a file that can't be written; the experiment is then not published.
        """
        partial = self.experiments / f"{PARTIAL}{experiment.slug}"
        final = self.experiments / experiment.slug
        if breakdown is not None:
            write_file(partial / BREAKDOWN, breakdown.model_dump_json(indent=1))
        outcome = outcome.model_copy(update={"format_version": FORMAT_VERSION})
        write_file(partial / STATUS, outcome.model_dump_json(indent=1))
        write_manifest(partial, experiment.slug)
        with self._replaced(experiment):
            partial.rename(final)
            sync_directory(self.experiments)
        return final

    def discard(self, experiment: AnyExperiment) -> None:
        """Removes the files of an unfinished experiment as far as possible."""
        with suppress(StoreError):
            remove(self.experiments / f"{PARTIAL}{experiment.slug}")

    def forget(self, experiment: AnyExperiment) -> None:
        """Removes an experiment's result, if there is one. Requires the lock."""
        with self._replaced(experiment):
            pass

    @contextmanager
    def _replaced(self, experiment: AnyExperiment) -> Iterator[None]:
        """Moves a result away atomically, because a partly removed one would still look finished."""
        old = self.experiments / f"{PARTIAL}old-{experiment.slug}"
        with suppress(FileNotFoundError):
            (self.experiments / experiment.slug).rename(old)
        yield
        remove(old)

    def results(self) -> list[Result]:
        """Returns every usable finished experiment, those of the study first and in its order. Warns of each
        unusable one with DamagedResultWarning; `contents` returns both.

        Raises:
            StoreError: if no study was run here.
        """
        contents = self.contents()
        for diagnostic in contents.diagnostics():
            about = f"{diagnostic.subject}: {diagnostic.message}" if diagnostic.subject else diagnostic.message
            warnings.warn(f"{self.root}: left out: {about}", DamagedResultWarning, stacklevel=2)
        return list(contents.results)

    def contents(self, *, every_byte: bool = False) -> Contents[Result]:
        """Returns every finished experiment, and the entries that can't be used.

        Args:
            every_byte: see `read_result`.

        Raises:
            StoreError: if no study was run here.
        """
        return self._contents(lambda directory, name, _: read_result(directory, name, every_byte=every_byte))

    def summaries(self) -> Contents[ResultSummary]:
        """Returns the same as `contents` without samples, because the samples of many results don't fit into
        memory.

        Results that haven't changed since they were last read come from the store's index, which is written again
        if it lacks any.

        Raises:
            StoreError: if no study was run here.
        """
        index, reader = Index(self.root), SummaryReader()

        def read(directory: Path, name: str, experiment: AnyExperiment | None) -> ResultSummary:
            stamp = stamp_of(directory)
            entry = index.find(name, stamp)
            if experiment is not None and entry is not None and entry.summarised:
                return ResultSummary(experiment, entry.outcome, entry.read_summary(), directory)
            result = reader.read(directory, name)
            index.add(Entry.of(name, stamp, result.outcome, result.summary))
            return result

        contents = self._contents(read)
        index.keep_only(result.directory.name for result in contents.results)
        index.save()
        return contents

    def check(self) -> Contents[Result]:
        """Returns the same as `contents` after every file was checked. Damaged results leave the index, so that
        reports don't show them either.

        Raises:
            StoreError: if no study was run here.
        """
        contents = self.contents(every_byte=True)
        index = Index(self.root)
        index.keep_only(result.directory.name for result in contents.results)
        index.save()
        return contents

    def upgrade(self, results: Iterable[Result]) -> int:
        """Writes manifests for results of versions that had none, and returns their number. Requires the lock.

        Raises:
            OSError: names a file that can't be written.
        """
        count = 0
        for result in results:
            if not (result.directory / MANIFEST).exists():
                write_manifest(result.directory, result.directory.name)
                count += 1
        return count

    def _contents(self, read: Callable[[Path, str, AnyExperiment | None], R]) -> Contents[R]:
        study, problem = None, None
        try:
            study = self.study() if self.has_study() else None
        except (SpecError, StoreError) as error:
            problem = str(error)
        planned = tuple(self.planned(study)) if study else ()
        try:
            results, damaged = read_all(self.experiments, planned, read)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(
                f"{self.root}: no study was run here (there is no 'experiments' directory)"
            ) from error
        except OSError as error:
            raise StoreError(f"{self.experiments}: can't be read ({error.strerror})") from error
        return Contents(results, damaged, study, problem, planned)
