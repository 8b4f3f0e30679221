"""Reads paths into a `TraceSet`: finds the files, reads them on all cores and assigns their ranks."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from wirecost.text import encodable
from wirecost.trace.classify import Classifier
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.file import require_device
from wirecost.trace.identity import parse_rank_options, rank_by_option
from wirecost.trace.pool import read_all
from wirecost.trace.rank import Options, RankTrace
from wirecost.trace.reduction import SUFFIX
from wirecost.trace.result import TraceSet
from wirecost.trace.source import ForeignFile, TraceError
from wirecost.trace.windows import check_choice

_SUFFIXES = (".json", ".json.gz", ".json.zst", ".sqlite", ".json.zstd", SUFFIX)

# Cells and events that a rank's time line keeps while it is read.
_PAGE_SEGMENTS = 50_000

PathLike = str | os.PathLike[str]


def read(
    paths: PathLike | Iterable[PathLike],
    *,
    window: str = "auto",
    comm_patterns: Iterable[str] = (),
    ranks: Iterable[str] = (),
    jobs: int | None = None,
    timeline: bool | int = False,
    step_time_ns: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TraceSet:
    """Reads profiler traces: files, directories, globs; .json, .json.gz, .json.zst, Nsight Systems .sqlite.

    Args:
        window: the source of iterations: `auto`, `launches`, `gpu`, `cpu` (profiler steps), `whole`, or
            `name:REGEX` (see `windows.windows`).
        comm_patterns: regular expressions of further event names that are communication.
        ranks: `FILE=RANK` for files whose rank can't be determined (FILE may be a glob).
        jobs: number of worker processes; by default one for each core.
        timeline: whether to keep the data that `write_html` draws; a number limits each rank's cells and events.
        step_time_ns: the job's own step time without the profiler, to compute the time that the profiler adds.
        progress: called with (bytes read, total bytes).

    Raises:
        TraceError: if paths hold no trace, or ranks are ambiguous.
    """
    check_choice(window)
    Classifier(comm_patterns := tuple(comm_patterns))
    rank_options = parse_rank_options(ranks)
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = find_files(named)
    asked_for = {Path(path).resolve() for path in named}
    total, so_far = sum(f.stat().st_size for f in files), 0

    def advance(count: int) -> None:
        nonlocal so_far
        so_far += count
        if progress is not None:
            progress(min(so_far, total), total)

    options = Options(
        window=window,
        comm_patterns=comm_patterns,
        timeline_segments=_PAGE_SEGMENTS if timeline is True else int(timeline),
    )
    outcomes = read_all(files, options, jobs=jobs, progress=advance)
    diagnostics = DiagnosticCounts()
    traces: list[RankTrace] = []
    errors: list[TraceError] = []
    for file, outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, TraceError):
            errors.append(outcome)
            # A directory of traces may contain other files.
            left_out = isinstance(outcome, ForeignFile) and file.resolve() not in asked_for
            diagnostics.add("other_file" if left_out else "unreadable", detail=encodable(str(outcome)))
            continue
        for trace in outcome:
            # Each of several processes in one export is named by its own name, `node0.sqlite (process 1)`.
            option_rank = rank_by_option(file if len(outcome) == 1 else trace.file, rank_options)
            if option_rank is not None:
                trace.rank, trace.rank_source = option_rank, "told"
            traces.append(trace)
    if not traces:
        raise errors[0]
    require_device(traces)
    return TraceSet(_ordered(traces, diagnostics), diagnostics, step_time_ns=step_time_ns)


def _files_inside(folder: Path) -> list[Path]:
    if (folder / "study.yaml").exists() and (folder / "experiments").is_dir():
        raise TraceError(
            f"{folder}: holds a study's results: wirecost report {folder}; traces of a profiled experiment "
            "are in its folder traces"
        )
    inside = sorted((path for path in folder.rglob("*") if _is_trace_name(path)), key=natural)
    if not inside:
        raise TraceError(f"{folder}: no traces in this directory; expected files named *{', *'.join(_SUFFIXES)}")
    return inside


def find_files(paths: Sequence[PathLike]) -> list[Path]:
    """Returns the trace files that paths, directories (searched to any depth) and globs name, each once.

    Raises:
        TraceError: if a path, directory or glob gives no file.
    """
    files: dict[Path, Path] = {}
    if not paths:
        raise TraceError("no traces given: name files, directories or globs")
    for text in paths:
        path = Path(text)
        try:
            there = path.exists()
        except OSError as error:  # a name longer than the file system takes
            raise TraceError(f"{str(path)[:80]}...: can't be read: {error.strerror}") from error
        if not os.fspath(text):
            raise TraceError("an empty path (an unset variable?): name files, directories or globs")
        if path.is_dir():
            inside = _files_inside(path)
        elif there:
            if not path.is_file():
                # The file is read more than once (first to detect its kind), which a pipe or device doesn't allow.
                raise TraceError(f"{path}: not a regular file; write a pipe's data to a file first")
            inside = [path]
        elif glob.has_magic(str(text)):
            inside = sorted((Path(p) for p in glob.glob(str(text), recursive=True)), key=natural)  # noqa: PTH207
            inside = [p for p in inside if p.is_file()]
            if not inside:
                raise TraceError(f"{text}: no file matches")
        else:
            raise TraceError(f"{path}: no such file or directory")
        for file in inside:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _is_trace_name(path: Path) -> bool:
    return path.name.lower().endswith(_SUFFIXES) and path.is_file()


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Returns a sort key that puts rank 2 before rank 10."""
    return [(0, int(t)) if t.isdigit() and t.isascii() else (1, t) for t in re.split(r"([0-9]+)", str(path))]


def _ordered(traces: list[RankTrace], diagnostics: DiagnosticCounts) -> list[RankTrace]:
    """Returns the traces in order of rank. A lone trace may keep its rank unknown; of several, each must have one
    of its own."""
    unknown = [t for t in traces if t.rank is None]
    if unknown and len(unknown) == len(traces) and all(t.rank_source == "part" for t in traces):
        for number, trace in enumerate(traces):
            trace.rank, trace.rank_source = number, "order"
        diagnostics.add("rank_unknown", len(traces))
        unknown = []
    if unknown and len(traces) > 1:
        raise TraceError(
            f"{unknown[0].file}: its rank is unknown: neither distributedInfo nor a name like rank3_... gives it; "
            f"give it with --rank '{Path(unknown[0].file).name}=3'"
        )
    claimed: dict[int | None, RankTrace] = {}
    for trace in traces:
        other = claimed.setdefault(trace.rank, trace)
        if other is not trace:
            apart = Path(other.file).parent != Path(trace.file).parent
            hint = "read one directory at a time" if apart else "take one of them"
            raise TraceError(
                f"{other.file} ({other.rank_source}) and {trace.file} ({trace.rank_source}) both claim rank "
                f"{trace.rank}; {hint}, or give the rank of each file with --rank FILE=RANK"
            )
    return sorted(traces, key=lambda t: t.rank or 0)
