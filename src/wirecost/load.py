"""A breakdown from wherever it lies: wirecost's own JSON, or somebody's traces."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from wirecost.breakdown import Breakdown
from wirecost.errors import WirecostError
from wirecost.reading import open_file, read_result

_HEAD_BYTES = 1 << 16


def load_breakdown(given: str) -> Breakdown:
    """A breakdown's JSON file, or traces (a file, a directory, a glob).

    Raises:
        WirecostError: one line, if it is neither, or a study's result that is damaged.
    """
    path = Path(given)
    beside = (path.with_name(name) for name in ("status.json", "manifest.json"))
    if path.name == "breakdown.json" and any(map(os.path.lexists, beside)):
        return _of_study(path.parent)
    head = b""
    try:
        if path.is_file():
            with open_file(path, pipes=False) as file:
                head = file.read(_HEAD_BYTES)
    except OSError as error:  # a name longer than the file system takes
        raise WirecostError(f"{given[:80]}: can't be read: {error.strerror or error}") from error
    if b'"schema_version"' in head and b'"source"' in head and b'"traceEvents"' not in head:
        try:
            data = read_result(path)
            return Breakdown.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise WirecostError(f"{path}: no sound breakdown: {where}: {first['msg']}") from error
    from wirecost.trace import read

    return read(given).breakdown


def _of_study(directory: Path) -> Breakdown:
    from wirecost.study.manifest import DamageError
    from wirecost.study.result import read_result

    try:
        result = read_result(directory)
    except DamageError as error:
        raise WirecostError(
            f"{directory}: {error}; run it again with: wirecost study run --resume --repair"
        ) from error
    if result.breakdown is None:
        raise WirecostError(f"{directory}: has no breakdown: the experiment ended as {result.outcome.status}")
    return result.breakdown
