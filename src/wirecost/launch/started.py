"""What the launchers of ranks have in common, for those who watch the ranks."""

from __future__ import annotations

from typing import Protocol

from wirecost.launch.result import JobResult


class StartedRanks(Protocol):
    """The processes of a job, started on this machine (`ranks`), by srun (`step`) or by torchrun on named machines
    (`machines`). Leaving the context ends those that still run.
    """

    def __enter__(self) -> StartedRanks: ...

    def __exit__(self, *_: object) -> None: ...

    def codes(self) -> list[int | None]:
        """Returns the exit code of each process that this one started, None while it runs."""
        ...

    def pids(self) -> list[int]:
        """Returns the process IDs of the ranks that still run, if they are processes of this machine that
        can be examined. It is empty if another launcher started them.
        """
        ...

    def number(self, pid: int) -> int:
        """Returns which of the processes has a process ID that `pids` gave."""
        ...

    def failed(self) -> JobResult:
        """Returns the result of a job of which a process has failed, with the rank that caused it.

        Raises:
            StorageError: if a rank could not write or read a file. Such a job has no result.
        """
        ...


class Elsewhere:
    """The part of `StartedRanks` for ranks that another program starts, perhaps on other machines."""

    def pids(self) -> list[int]:
        """Returns nothing: the ranks may be on other machines."""
        return []

    def number(self, pid: int) -> int:
        """Raises ValueError: `pids` gives none."""
        raise ValueError(pid)
