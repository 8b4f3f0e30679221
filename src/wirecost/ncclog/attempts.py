"""Recognises consecutive jobs in one log: a launcher's restarts, or several runs of one script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirecost.ncclog.state import LogState, Process


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """The attempts in a log. `number` counts, from 0, the processes that replaced each other at one place."""

    number: dict[int, int]  # by the process's id
    places: int  # number of places with more than one process

    @property
    def count(self) -> int:
        return max(self.number.values(), default=0) + 1

    def is_last(self, process: Process) -> bool:
        """Returns whether no later process replaced this one."""
        return self.number.get(id(process), self.count - 1) == self.count - 1


def attempts_of(state: LogState) -> Attempts:
    """Finds consecutive processes with the same rank in a job of the same size on the same GPU.

    Two communicators of one process don't count, nor do two processes of one communicator.
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
