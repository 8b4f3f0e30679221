"""Writes files without overwriting any of the traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wirecost.trace.source import TraceError

if TYPE_CHECKING:
    from wirecost.trace.result import TraceSet


def refuse_input(traces: TraceSet, path: Path) -> None:
    """Raises TraceError where `path` is one of the files that were read."""
    try:
        same = path.exists() and any(Path(t.file).exists() and path.samefile(t.file) for t in traces.traces)
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
    if same:
        raise TraceError(f"{path}: this is one of the traces; name another output file")


def write_text(traces: TraceSet, path: Path, text: str) -> None:
    """Writes a text file. Raises TraceError if it can't be written or is one of the traces."""
    refuse_input(traces, path)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
