"""Determines how an experiment ended, from the files that its processes left."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from wirecost.breakdown import Breakdown
from wirecost.launch.failures import storage_paths
from wirecost.launch.ranks import LOG_LINES
from wirecost.spec import AnyExperiment, JobExperiment
from wirecost.storage import UNKNOWN, StorageError, check_writable, fault_of_exit, tells_of_fault
from wirecost.study.collect import collect
from wirecost.study.collect_job import collect_job
from wirecost.study.manifest import first_reason
from wirecost.study.result import Outcome, Status


def judge(experiment: AnyExperiment, directory: Path, code: int, cores: int) -> tuple[Outcome, Breakdown | None]:
    """Returns how an experiment ended, and its breakdown if it is done.

    Args:
        code: the exit code of the experiment's process.
        cores: the cores that the ranks shared.

    Raises:
        StorageError, OSError: if the experiment ended because of the storage, or can't be judged because of it. A
            process that can't write may fail without naming the reason, so no failure is recorded while the
            directory isn't writable.
    """
    if fault := fault_of_exit(code):
        if fault == UNKNOWN:
            check_writable(directory)  # the output may name the fault
        raise StorageError(next(iter(storage_paths(directory)), directory), fault)
    outcome, breakdown = _ended(experiment, directory, code, cores)
    if outcome.status is not Status.DONE:
        check_writable(directory)
    # A rank that left a traceback has been judged by its error; other ranks left only their log.
    if outcome.status is Status.FAILED and outcome.traceback is None:
        for line in (outcome.reason or "", *outcome.log_tail):
            if fault := tells_of_fault(line):
                raise StorageError(directory, fault)
    return outcome, breakdown


def _ended(experiment: AnyExperiment, directory: Path, code: int, cores: int) -> tuple[Outcome, Breakdown | None]:
    path = directory / "outcome.json"
    if not path.exists():
        tail = (directory / "logs" / "cell.log").read_text(errors="replace").splitlines()[-LOG_LINES:]
        last_line = f": {tail[-1].strip()[:300]}" if tail else ""
        return Outcome(
            status=Status.FAILED,
            reason=f"the experiment's process ended with exit code {code} before its ranks did{last_line}",
            log_tail=tuple(tail),
        ), None
    try:
        outcome = Outcome.model_validate_json(path.read_bytes())
    except ValidationError as error:
        reason = f"how it ended can't be read: {first_reason(error)}"
        return Outcome(status=Status.FAILED, reason=reason), None
    if outcome.status is not Status.DONE:
        return outcome, None
    try:
        if isinstance(experiment, JobExperiment):
            return outcome, collect_job(experiment, directory, cores)
        return outcome, collect(experiment, directory, cores)
    except (ValueError, KeyError, TypeError) as error:
        what = f"no key {error}" if isinstance(error, KeyError) else str(error)
        return Outcome(status=Status.FAILED, reason=f"its samples can't be read: {what}"), None
