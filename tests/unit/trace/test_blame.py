"""Who is late by itself: jobs in which one rank is held up, and others only because of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.timelines import ALL_REDUCE, COMM_STREAM, Timeline
from wirecost.trace import TraceSet, read
from wirecost.trace.blame import Straggler


def group(name: str, size: int) -> dict[str, Any]:
    return {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
            "Process Group Name": name, "Process Group Ranks": name, "Group size": size}  # fmt: skip


class Job:
    """Ranks that compute and meet: `meet` waits for the last of its members and takes 20 us."""

    def __init__(self, ranks: int) -> None:
        self.lines = [Timeline(rank=r, world=ranks) for r in range(ranks)]
        self.now = [0.0] * ranks

    def compute(self, rank: int, length: float) -> None:
        self.lines[rank].device(self.now[rank], length)
        self.now[rank] += length

    def meet(self, members: tuple[int, ...]) -> None:
        end = max(self.now[r] for r in members) + 20
        for r in members:
            self.lines[r].device(self.now[r], end - self.now[r], ALL_REDUCE, stream=COMM_STREAM,
                                 **group(str(list(members)), len(members)))  # fmt: skip
            self.now[r] = end

    def read(self, folder: Path) -> TraceSet:
        for line in self.lines:
            line.write(folder)
        return read(folder)


def by_rank(traces: TraceSet) -> dict[int, Straggler]:
    return {s.rank: s for s in traces.stragglers}


def tensor_and_data_parallel(slow: int, extra: float, steps: int = 5) -> Job:
    """Four ranks: tensor parallel in (0, 1) and (2, 3), data parallel in (0, 2) and (1, 3)."""
    job = Job(4)
    for _ in range(steps):
        for r in range(4):
            job.compute(r, 100 + (extra if r == slow else 0))
        job.meet((0, 1))
        job.meet((2, 3))
        for r in range(4):
            job.compute(r, 50)
        job.meet((0, 2))
        job.meet((1, 3))
    return job


def test_a_rank_that_only_waited_is_not_blamed(tmp_path: Path) -> None:
    """Rank 3 is slow. Rank 2 waits for it, so both come late to the data-parallel groups; ranks 0 and 1 wait there."""
    found = by_rank(tensor_and_data_parallel(slow=3, extra=80).read(tmp_path))
    assert found[3].late > 0
    assert found[2].late == found[2].cost_ns == 0
    assert found[2].passed_on_ns == 5 * 80_000
    # Rank 2 waits 80 us in four steps (the first of each rank doesn't count), ranks 0 and 1 in five.
    assert found[3].cost_ns == (4 + 2 * 5) * 80_000
    assert all(found[r].cost_ns == 0 for r in (0, 1))


def test_a_delay_of_its_own_is_told_from_the_one_it_waited_for(tmp_path: Path) -> None:
    job = Job(4)
    for _ in range(4):
        for r in range(4):
            job.compute(r, 100 + (80 if r == 3 else 0))
        job.meet((2, 3))
        for r in range(4):
            job.compute(r, 50 + (30 if r == 2 else 0))
        job.meet((0, 2))
        job.meet((1, 3))
        job.meet((0, 1, 2, 3))
    found = by_rank(job.read(tmp_path))
    # Rank 0 waits 100 + 30 + the 20 of the meeting for rank 2 each time: 80 of them are rank 3's, by rank 2's wait.
    per_step = found[2].passed_on_ns / 3
    assert per_step == 80_000
    assert found[2].cost_ns >= 3 * 30_000
    assert found[3].cost_ns >= 3 * (80_000 + 80_000)


def test_the_chain_leads_over_several_ranks_to_the_first_cause(tmp_path: Path) -> None:
    """0 is slow; 1 waits for 0, 2 for 1, 3 for 2, each in a group of its own."""
    job = Job(4)
    for _ in range(4):
        job.compute(0, 200)
        for r in (1, 2, 3):
            job.compute(r, 100)
        for pair in ((0, 1), (1, 2), (2, 3)):
            job.meet(pair)
        job.meet((0, 1, 2, 3))
    found = by_rank(job.read(tmp_path))
    assert found[0].cost_ns > 0
    # Each meeting takes its 20 us, by which the later ranks are late by themselves.
    late_by_meetings = 20_000 * 3 * 4
    assert all(found[r].cost_ns <= late_by_meetings for r in (1, 2, 3))
    assert found[0].cost_ns >= 3 * 3 * 100_000


def test_even_ranks_are_nobodys_fault(tmp_path: Path) -> None:
    found = by_rank(tensor_and_data_parallel(slow=3, extra=0).read(tmp_path))
    assert len(found) == 4
    assert all(s.cost_ns == s.late == 0 for s in found.values())
