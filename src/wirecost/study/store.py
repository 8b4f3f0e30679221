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
        manifest.json                whose files these are, their sizes and SHA-256 (wirecost.study.manifest)

An experiment is built in a directory whose name starts with `.partial-` and renamed when it is finished, so
a study killed at any moment has lost no finished experiment and holds no half one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.errors import DeprecatedWarning, SpecError, WirecostError
from wirecost.spec import Experiment, Study, parse_yaml, to_yaml, validate
from wirecost.storage import StorageError, fault_of, path_of, sync_directory, write_file
from wirecost.study.contents import Contents, R, read_all
from wirecost.study.manifest import read_regular, write_manifest
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

PARTIAL = ".partial-"

__all__ = ["Contents", "Damaged", "Outcome", "Result", "ResultSummary", "Status", "Store", "StoreError"]


class DamagedResultWarning(UserWarning):
    """A result that is left out because it is damaged."""


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
            StoreError: if another run holds it, or it can't be written or read, then or meanwhile.
        """
        try:
            self.experiments.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            fault = fault_of(error)
            remedy = f"; {fault.remedy}" if fault else ""
            raise StoreError(f"{error.filename}: can't be written: {error.strerror}{remedy}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"{self.root}: another run is writing here; wait for it or use --out") from error
            except OSError as error:
                raise StoreError(
                    f"{self.root}: can't be locked: {error.strerror}; choose another --out"
                ) from error
            try:
                yield
            except (OSError, StorageError) as error:
                message = self._message(error)
                if message is None:
                    raise
                raise StoreError(f"{message}, then go on with --resume (finished experiments are kept)") from error
        finally:
            os.close(lock)

    def _message(self, error: OSError | StorageError) -> str | None:
        """What happened and what to do; None for an error that concerns neither the storage nor this store."""
        if isinstance(error, StorageError):
            return str(error)
        path, fault = path_of(error), fault_of(error)
        if fault is not None:
            return str(StorageError(path or self.root, fault))
        if path is not None and Path(path).absolute().is_relative_to(self.root.absolute()):
            remedy = "give yourself the right to it" if isinstance(error, PermissionError) else "move it away"
            return f"{path}: can't be used: {error.strerror or error}; {remedy}"
        return None

    def is_used(self) -> bool:
        """Whether an earlier run left anything here. Raises StoreError if that can't be known."""
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
        text = to_yaml(study)
        with suppress(SpecError, StoreError):
            if self._has_study() and to_yaml(self.study()) == text:
                return
        write_file(self.root / "study.yaml", text)

    def check_study_file(self, study: Study) -> None:
        """Checks that a first run replaces no file of the user's.

        Raises:
            StoreError: if no study was run here, and another study.yaml lies here.
        """
        if not self._has_study() or os.path.lexists(self.experiments):
            return
        with suppress(SpecError, StoreError):
            if to_yaml(self.study()) == to_yaml(study):
                return
        raise StoreError(
            f"{self.root / 'study.yaml'}: is another study's, and none was run here; choose another --out"
        )

    def check_output(self, path: Path) -> None:
        """Checks that a report may be written to a file or folder.

        Raises:
            StoreError: if it belongs to the results.
        """
        root = self.root.resolve()
        own = (root / "study.yaml", root / ".lock", self.experiments.resolve(), self.corpus.resolve())
        if any(path.resolve().is_relative_to(place) for place in own):
            raise StoreError(f"{path}: belongs to the study's results; name another one to write")

    def study(self) -> Study:
        """Raises SpecError or StoreError if the directory holds no study."""
        path = self.root / "study.yaml"
        if not self._has_study():
            raise StoreError(f"{self.root}: no study was run here (there is no study.yaml)")
        try:
            text = read_regular(path).decode()
        except OSError as error:
            raise StoreError(f"{path}: can't be read ({error.strerror or error})") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: is not UTF-8 text") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecatedWarning)  # nobody writes this file by hand
            return validate(Study, parse_yaml(text, str(path)), str(path))

    def _has_study(self) -> bool:
        return os.path.lexists(self.root / "study.yaml")

    def is_finished(self, experiment: Experiment) -> bool:
        return (self.experiments / experiment.slug / STATUS).exists()

    def sweep(self) -> None:
        """Removes what an earlier run left half done. Only under the lock.

        Raises:
            StoreError: naming what can't be removed.
        """
        for path in self.experiments.glob(f"{PARTIAL}*"):
            remove(path)

    def begin(self, experiment: Experiment) -> Path:
        """An empty directory to run an experiment in. Raises StoreError or OSError."""
        path = self.experiments / f"{PARTIAL}{experiment.slug}"
        remove(path)
        for part in ("samples", "logs"):
            (path / part).mkdir(parents=True)
        write_file(path / EXPERIMENT, to_yaml(experiment))
        write_file(path / "experiment.json", experiment.model_dump_json())
        return path

    def publish(self, experiment: Experiment, outcome: Outcome, breakdown: Breakdown | None) -> Path:
        """Makes an experiment finished, at once and durably.

        Raises:
            OSError: naming a file that can't be written; the experiment is then not finished.
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

    def discard(self, experiment: Experiment) -> None:
        """Removes what there is of an unfinished experiment, as far as that can be done."""
        with suppress(StoreError):
            remove(self.experiments / f"{PARTIAL}{experiment.slug}")

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
        remove(old)

    def results(self) -> list[Result]:
        """Every finished experiment that can be used, in the study's order where the study has it; what can't be
        used is warned of (DamagedResultWarning). `contents` gives both as data.

        Raises:
            StoreError: if no study was run here.
        """
        contents = self.contents()
        for remark in contents.remarks():
            warnings.warn(f"{self.root}: left out: {remark}", DamagedResultWarning, stacklevel=2)
        return list(contents.results)

    def contents(self, *, every_byte: bool = False) -> Contents[Result]:
        """Every finished experiment, and what lies here and can't be used.

        Args:
            every_byte: see `read_result`.

        Raises:
            StoreError: if no study was run here.
        """
        return self._contents(partial(read_result, every_byte=every_byte))

    def summaries(self) -> Contents[ResultSummary]:
        """As `contents`, without the samples, which many results together have no room for in memory."""
        return self._contents(SummaryReader().read)

    def _contents(self, read: Callable[[Path, str], R]) -> Contents[R]:
        study, problem = None, None
        try:
            study = self.study() if self._has_study() else None
        except (SpecError, StoreError) as error:
            problem = str(error)
        try:
            results, damaged = read_all(self.experiments, study, read)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(
                f"{self.root}: no study was run here (there is no 'experiments' directory)"
            ) from error
        except OSError as error:
            raise StoreError(f"{self.experiments}: can't be read ({error.strerror})") from error
        return Contents(results, damaged, study, problem)


def remove(path: Path) -> None:
    """Removes whatever lies at a path, if anything does.

    Raises:
        StoreError: naming what can't be removed.
    """
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(
            f"{path}: is left of an earlier run and can't be deleted: {error.filename or path}: {error.strerror}; "
            "delete it, or have its owner do so, then go on with --resume"
        ) from error
