"""The result of a distributed job: its status, and the rank that caused a failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wirecost.breakdown.memory import OutOfMemory


class JobStatus(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    REFUSED = "refused"  # the request can't be fulfilled, and the user can correct it
    TIMED_OUT = "timed_out"


@dataclass(frozen=True)
class JobResult:
    """The result of a distributed job.

    Attributes:
        reason: why the job isn't done. It is None if the job is done, and if it timed out.
        rank: the rank that caused it. If the job timed out, the rank that the others wait for. None if unknown.
        traceback: the Python traceback of that rank.
        log_tail: the last lines of the log of that rank.
        memory: the peak memory and the failed allocation, if memory ran out.
        exit_code: exit code of that rank, if it is all that is known of the cause.
    """

    status: JobStatus
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None
    log_tail: tuple[str, ...] = ()
    memory: OutOfMemory | None = None
    exit_code: int | None = None
