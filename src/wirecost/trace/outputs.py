"""Writes files without overwriting any of the traces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wirecost.trace.source import TraceError


def refuse_input(files: Iterable[str], path: Path) -> None:
    """Raises TraceError where `path` is one of the files that were read."""
    try:
        same = path.exists() and any(Path(file).exists() and path.samefile(file) for file in files)
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
    if same:
        raise TraceError(f"{path}: this is one of the traces; name another output file")


def write_text(files: Iterable[str], path: Path, text: str) -> None:
    """Writes a text file. Raises TraceError if it can't be written or is one of the `files` that were read."""
    refuse_input(files, path)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
