"""Loads a breakdown from wirecost's own JSON, an experiment of a study, or profiler traces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from wirecost.breakdown import Breakdown
from wirecost.errors import WirecostError
from wirecost.reading import open_file, read_result

_HEAD_BYTES = 1 << 16


def load_breakdown(source: str, *, window: str = "auto") -> Breakdown:
    """Returns the breakdown of a source.

    Args:
        source: a breakdown's JSON file, an experiment's directory (its measurement, not its profiled part), or
            traces (a file, a directory or a glob).
        window: the source of the iterations of traces, as in `wirecost trace`.

    Raises:
        WirecostError: one line, if the source is none of them or an experiment's result is damaged.
    """
    path = Path(source)
    if is_experiment(path):
        return _of_study(path)
    siblings = (path.with_name(name) for name in ("status.json", "manifest.json"))
    if path.name == "breakdown.json" and any(map(os.path.lexists, siblings)):
        return _of_study(path.parent)
    head = b""
    try:
        if path.is_file():
            with open_file(path, pipes=False) as file:
                head = file.read(_HEAD_BYTES)
    except OSError as error:  # a name longer than the file system takes
        raise WirecostError(f"{source[:80]}: can't be read: {error.strerror or error}") from error
    if b'"schema_version"' in head and b'"source"' in head and b'"traceEvents"' not in head:
        return _saved(path)
    from wirecost.trace import read

    return read(source, window=window).breakdown


def _saved(path: Path) -> Breakdown:
    try:
        return Breakdown.model_validate_json(read_result(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise WirecostError(f"{path}: invalid breakdown: {where}: {first['msg']}") from error


def is_experiment(path: Path) -> bool:
    """Returns whether a path is the directory of an experiment of a study."""
    return _there(path / "experiment.yaml")


def is_study(path: Path) -> bool:
    """Returns whether a path is the directory of a study's results."""
    return _there(path / "study.yaml") or any(True for _ in _finished(path))


def _finished(path: Path) -> Iterator[Path]:
    try:
        yield from (path / "experiments").glob("[!.]*/status.json")
    except OSError:
        return


def _there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name longer than the file system takes, or with a NUL
        return False


def _of_study(directory: Path) -> Breakdown:
    from wirecost.study.manifest import DamageError
    from wirecost.study.result import read_result

    if not _there(directory / "status.json"):
        raise WirecostError(f"{directory}: holds no status.json: the experiment did not finish")
    try:
        result = read_result(directory)
    except DamageError as error:
        raise WirecostError(
            f"{directory}: {error}; run it again with: wirecost study run --resume --repair"
        ) from error
    if result.breakdown is None:
        raise WirecostError(f"{directory}: has no breakdown: the experiment ended as {result.outcome.status}")
    return result.breakdown
