"""Jobs that follow each other in one log: a launcher's restarts, or several runs of one script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirecost.ncclog.state import LogState, Process


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """`number` of each process that took the place of another one, or had its place taken; counted from 0."""

    number: dict[int, int]  # by id of the process
    places: int  # how many places were taken more than once

    @property
    def count(self) -> int:
        return max(self.number.values(), default=0) + 1

    def is_last(self, process: Process) -> bool:
        """Whether no later process took this one's place."""
        return self.number.get(id(process), self.count - 1) == self.count - 1


def attempts_of(state: LogState) -> Attempts:
    """Finds processes that are the same rank of as large a job on the same GPU, one after another.

    Two communicators of one process are none of it, and neither are two processes of one communicator.
    """
    places: dict[tuple[str, int, int, int], list[Process]] = {}
    for process in state.processes.values():
        host = process.host_identity
        if host is None or process.pid is None or not process.memberships:
            continue
        world = max(process.memberships, key=lambda m: m.nranks)
        if world.nranks < 2:
            continue
        before = places.setdefault((host, world.device, world.rank, world.nranks), [])
        names = {m.comm_id for p in before for m in p.memberships if m.comm_id is not None}
        if world.comm_id is None or world.comm_id not in names:
            before.append(process)
    several = [ps for ps in places.values() if len(ps) > 1]
    number = {id(p): k for ps in several for k, p in enumerate(ps)}
    return Attempts(number, len(several))
