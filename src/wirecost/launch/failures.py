"""Finds the rank that caused a job's failure, from the failures that ranks reported."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from wirecost.breakdown.memory import OutOfMemory
from wirecost.launch.rank import OUT_OF_MEMORY
from wirecost.launch.result import JobResult, JobStatus


def read_failures(directory: Path) -> list[dict[str, Any]]:
    """Returns the failures that ranks reported (`wirecost.launch.rank.report_failure`), in order of rank. Reports
    that couldn't be written completely are skipped.
    """
    failures = []
    for path in sorted((directory / "failures").glob("rank-*.json")):
        with contextlib.suppress(OSError, ValueError):
            failure = json.loads(path.read_bytes())
            if isinstance(failure, dict) and "kind" in failure:
                failures.append(failure)
    return failures


def causes_of(failures: Sequence[dict[str, Any]], ended_first: Collection[int]) -> list[dict[str, Any]]:
    """Returns the failures that may be the cause of the others, the likeliest first. A rank that lost its peer
    doesn't know the cause.

    Args:
        ended_first: the ranks that ended before all others.
    """
    causes = [failure for failure in failures if failure["kind"] != "lost_peer"]
    return sorted(causes, key=lambda failure: (failure["rank"] not in ended_first, failure["rank"]))


def result_of(
    failures: Sequence[dict[str, Any]], ended_first: Collection[int], log_tail: Callable[[int], tuple[str, ...]]
) -> JobResult:
    """Returns the result of a job in which at least one rank reported a failure.

    Args:
        failures: the reported failures, at least one.
        ended_first: the ranks that ended before all others.
        log_tail: returns the last lines of a rank's log.
    """
    cause = (causes_of(failures, ended_first) or list(failures))[0]
    status = {OUT_OF_MEMORY: JobStatus.OUT_OF_MEMORY, "refused": JobStatus.REFUSED}.get(
        cause["kind"], JobStatus.FAILED
    )
    reason = cause["reason"] if status is JobStatus.REFUSED else f"rank {cause['rank']}: {cause['reason']}"
    memory = None
    if status is JobStatus.OUT_OF_MEMORY:
        memory = _largest(
            [OutOfMemory.model_validate(f.get("memory", {})) for f in failures if f["kind"] == OUT_OF_MEMORY]
        )
        reason = f"{reason}; {memory.words}"
    return JobResult(status, reason, cause["rank"], cause["traceback"], log_tail(cause["rank"]), memory)


def storage_paths(directory: Path) -> list[str]:
    """Returns the files that the ranks of a job could not write or read, according to their failure reports."""
    return [str(f["path"]) for f in read_failures(directory) if f["kind"] == "storage" and f.get("path")]


def _largest(reports: Sequence[OutOfMemory]) -> OutOfMemory:
    """Returns the largest peak and the largest failed allocation that ranks report.

    Only peaks of the kind of memory that the first report names are compared.
    """
    kind = next((m.kind for m in reports if m.kind is not None), None)
    return OutOfMemory(
        kind=kind,
        peak_bytes=max(
            (m.peak_bytes for m in reports if m.kind is kind and m.peak_bytes is not None), default=None
        ),
        asked_bytes=max((m.asked_bytes for m in reports if m.asked_bytes is not None), default=None),
    )
