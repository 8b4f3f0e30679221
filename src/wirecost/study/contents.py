"""Reads all results of a store: the usable and the damaged ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.spec import AnyExperiment, Study
from wirecost.study.manifest import MANIFEST, DamageError
from wirecost.study.result import EXPERIMENT, STATUS, Damaged, Result, ResultSummary

R = TypeVar("R", Result, ResultSummary)


@dataclass(frozen=True)
class Contents(Generic[R]):
    """The results in a store, those of the study first and in its order. `study` is None if the store has no
    readable study; `study_problem` is the reason if it can't be read.
    """

    results: tuple[R, ...]
    damaged: tuple[Damaged, ...]
    study: Study | None
    study_problem: str | None = None
    planned: tuple[AnyExperiment, ...] = ()
    """The experiments of the study."""

    def without(self, damaged: Iterable[Damaged]) -> Contents[R]:
        """Returns the contents without these results, which are known to be damaged, as usable ones."""
        named = {d.name: d for d in (*damaged, *self.damaged)}
        results = tuple(r for r in self.results if r.directory.name not in named)
        return replace(self, results=results, damaged=tuple(named.values()))

    def diagnostics(self) -> list[Diagnostic]:
        """Returns one diagnostic for each result that can't be used and is left out."""
        unreadable = [diagnostic("study_unreadable", self.study_problem)] if self.study_problem else []
        return unreadable + [diagnostic("damaged_result", d.reason, subject=d.name) for d in self.damaged]


def read_all(
    experiments: Path, planned: Sequence[AnyExperiment], read: Callable[[Path, str, AnyExperiment | None], R]
) -> tuple[tuple[R, ...], tuple[Damaged, ...]]:
    """Returns the results in a store's directory of experiments, and the entries in place of results that can't be
    used. Both are in the order of `planned`, then by name.

    Args:
        planned: the study's experiments.
        read: reads the result in a directory, given its name and the experiment that is planned with it, or
            raises DamageError.

    Raises:
        OSError: if the directory can't be read.
    """
    order = {e.slug: n for n, e in enumerate(planned)}
    experiment_of = {e.slug: e for e in planned}
    places = sorted(_places(experiments, order), key=lambda p: (order.get(p.name, len(order)), p.name))
    results: list[R] = []
    damaged: list[Damaged] = []
    for place in places:
        result = _read(place, experiment_of.get(place.name), read)
        if isinstance(result, Damaged):
            damaged.append(result)
        elif result is not None:
            results.append(result)
    return tuple(results), tuple(damaged)


def _places(experiments: Path, planned: Collection[str]) -> list[Path]:
    """Returns the paths that are, or should be, the directory of a finished experiment, by their
    name or content.
    """
    names = [name for name in os.listdir(experiments) if not name.startswith(".")]  # noqa: PTH208
    return [experiments / name for name in names if name in planned or _holds_result(experiments / name)]


def _read(
    directory: Path, experiment: AnyExperiment | None, read: Callable[[Path, str, AnyExperiment | None], R]
) -> R | Damaged | None:
    """Returns the result at a path; None if there is none. A result that a run replaces or removes meanwhile isn't
    damaged.
    """
    before = _inode(directory)
    while True:
        try:
            return read(directory, directory.name, experiment)
        except DamageError as error:
            now = _inode(directory)
            if now is None:
                return None
            if now == before:
                return Damaged(directory, str(error))
            before = now


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _holds_result(path: Path) -> bool:
    try:
        return not {STATUS, MANIFEST, EXPERIMENT}.isdisjoint(os.listdir(path))  # noqa: PTH208
    except PermissionError:
        return True  # unknown; reading the file will raise the error
    except OSError:
        return False
