"""Reduces trace files where they lie (`wirecost trace --reduce`); `reduction` reads the reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from wirecost.storage import write_file
from wirecost.trace.identity import parse_rank_options, rank_by_option
from wirecost.trace.pool import read_all
from wirecost.trace.rank import Options
from wirecost.trace.reduction import SUFFIX, TIMELINE_SEGMENTS, encode_reduction
from wirecost.trace.source import TraceError


def reduce_traces(
    files: Sequence[Path],
    folder: Path,
    *,
    window: str = "auto",
    comm_patterns: Iterable[str] = (),
    ranks: Iterable[str] = (),
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Path]:
    """Writes the reduction of each trace file to a folder, and returns their paths.

    Args:
        files: trace files. The other arguments are those of `read.read`.
        progress: called with the number of bytes read since the last call.

    Raises:
        TraceError: if a file is no trace, or a reduction can't be written.
    """
    options = Options(window=window, comm_patterns=tuple(comm_patterns), timeline_segments=TIMELINE_SEGMENTS)
    rank_options = parse_rank_options(ranks)
    written = []
    for file, outcome in zip(files, read_all(files, options, jobs=jobs, progress=progress), strict=True):
        if isinstance(outcome, TraceError):
            raise outcome
        for trace in outcome:
            told = rank_by_option(file if len(outcome) == 1 else trace.file, rank_options)
            if told is not None:
                trace.rank, trace.rank_source = told, "told"
        alone = outcome[0] if len(outcome) == 1 else None
        name = f"rank-{alone.rank}" if alone is not None and alone.rank is not None else file.name
        path = folder / f"{name}{SUFFIX}"
        if path in written:
            raise TraceError(f"{file}: {path} is the reduction of another file; give each its rank with --rank")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, encode_reduction(options, outcome))
        except OSError as error:
            raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
        written.append(path)
    return written
