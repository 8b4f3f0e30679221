"""Finds and reads the logs of an experiment, finished or not."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from wirecost.errors import SpecError
from wirecost.study.store import PARTIAL, Store, StoreError

_TAIL_BYTES = 1 << 20
"""Most bytes that are read from the end of a log."""


def logs_of(
    root: Path, experiment: str | None, *, rank: int | None = None, lines: int = 40
) -> list[tuple[str, list[str]]]:
    """Returns the name and the last lines of each log of an experiment.

    Args:
        experiment: a part of the name that only one experiment has. None is the experiment that runs, or else the
            only one that there is.
        rank: the log of this rank only. None is all logs.
        lines: most lines of each log.

    Raises:
        SpecError: if no experiment or several have such a name, or there is no such rank.
        StoreError: if the directory holds no results, or a log can't be read.
    """
    directory = _directory(root, experiment)
    folder = directory / "logs"
    names = sorted(path.name for path in folder.glob("*.log"))
    if rank is not None:
        names = [name for name in names if name == f"rank-{rank}.log"]
        if not names:
            raise SpecError(f"{folder}: there is no log of rank {rank}")
    return [(f"{directory.name.removeprefix(PARTIAL)}/{name}", _tail(folder / name, lines)) for name in names]


def _directory(root: Path, experiment: str | None) -> Path:
    experiments = Store(root).experiments
    if not experiments.is_dir():
        raise StoreError(f"{root}: no study was run here (there is no 'experiments' directory)")
    try:
        names = [name for name in os.listdir(experiments) if not name.startswith(f"{PARTIAL}old-")]  # noqa: PTH208
    except OSError as error:
        raise StoreError(f"{experiments}: can't be read ({error.strerror})") from error
    # An experiment that runs again has two directories; its newest log is meant.
    running = {name.removeprefix(PARTIAL): name for name in names if name.startswith(PARTIAL)}
    places = {name: name for name in names if not name.startswith(".")} | running
    if experiment is None:
        found = sorted(running) if len(running) == 1 else sorted(places)
    else:
        found = sorted(name for name in places if experiment in name)
        found = [experiment] if experiment in found else found
    if len(found) != 1:
        which = "no experiment" if not found else f"{len(found)} experiments"
        named = "" if experiment is None else f" with {experiment!r} in its name"
        examples = f": {', '.join(found[:3])}{', ...' if len(found) > 3 else ''}" if found else ""
        raise SpecError(f"{experiments}: {which}{named}{examples}; name one with --experiment")
    return experiments / places[found[0]]


def _tail(path: Path, lines: int) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise StoreError(f"{path}: can't be read ({error.strerror})") from error
    return list(deque(text.splitlines(), maxlen=lines))
