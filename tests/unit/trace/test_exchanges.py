"""Sends and receives: matched by their ends, each waiting for its own neighbours only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.timelines import COMM_STREAM, Timeline
from wirecost.trace import TraceSet, read

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def told(op: str, *, peer: int, group: str = "PIPELINE", **more: Any) -> dict[str, Any]:
    """Arguments as PyTorch writes them: the other end alone."""
    end = {"Dst Rank": peer} if op == "send" else {"Src Rank": peer}
    return {"Collective name": op, "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float", "Group size": 2,
            "Process Group Name": "5", "Process Group Description": group, **end, **more}  # fmt: skip


def load(folder: Path, lines: list[Timeline]) -> TraceSet:
    for line in lines:
        line.write(folder)
    return read(folder)


def pipeline(stages: int, micro_batches: int, *, skip_first: int | None = None) -> list[Timeline]:
    """Forward passes of a pipeline: each stage computes 100 us, sends (20 us), the next receives from when it is
    free on. Rank `skip_first` was recorded from its second message on."""
    lines = [Timeline(rank=r, world=stages) for r in range(stages)]
    free = [0.0] * stages
    for m in range(micro_batches):
        arrives = 0.0
        for r, line in enumerate(lines):
            hidden = r == skip_first and m == 0
            if r:
                begin = free[r]
                done = max(arrives, begin) + 20
                if not hidden:
                    line.device(begin, done - begin, KERNEL, stream=COMM_STREAM, **told("recv", peer=r - 1))
                free[r] = done
            line.device(free[r], 100)
            free[r] += 100
            arrives = free[r]
            if r < stages - 1 and not hidden:
                # The receiver may be busy still: then the send waits for it.
                taken = max(arrives, free[r + 1]) + 20
                line.device(arrives, taken - arrives, KERNEL, stream=COMM_STREAM + 1, **told("send", peer=r + 1))
                free[r] = arrives
    return lines


def test_a_pipelines_receives_are_its_bubble(tmp_path: Path) -> None:
    traces = load(tmp_path, pipeline(3, 4))
    messages = [m for m in traces.matched if m.op == "send_recv"]
    assert len(messages) == 8
    assert all(m.bubble and m.basis == "aligned" for m in messages)
    assert all(m.transfer_ns.min() == 20_000 for m in messages)
    first = {p.rank: p for p in traces.comm_parts}
    # Stage 1 waits 100 us for the first micro-batch, stage 2 another 120; stages are balanced after that.
    assert first[1].bubble_ns >= 100_000 and first[2].bubble_ns >= 220_000
    for parts in traces.comm_parts:
        assert parts.transfer_ns + parts.bubble_ns + parts.wait_ns + parts.unknown_ns == parts.exposed_ns
        assert parts.wait_ns == parts.unknown_ns == 0
    assert [s for s in traces.stragglers if s.cost_ns] == []


def test_a_recording_that_began_later_is_matched_by_time(tmp_path: Path) -> None:
    traces = load(tmp_path, pipeline(2, 5, skip_first=1))
    messages = [m for m in traces.matched if m.op == "send_recv"]
    assert len(messages) == 4
    assert all(int(m.transfer_ns.min()) == 20_000 for m in messages)
    assert {p.code: p.count for p in traces.run_diagnostics}["point_to_point"] == 1


def test_a_short_message_that_is_sent_ahead_makes_nobody_wait(tmp_path: Path) -> None:
    lines = [Timeline(rank=r, world=2) for r in range(2)]
    lines[0].device(0, 5, KERNEL, stream=COMM_STREAM, **told("send", peer=1))
    lines[1].device(500, 5, KERNEL, stream=COMM_STREAM, **told("recv", peer=0))
    (m,) = load(tmp_path, lines).matched
    assert (m.wait_ns.tolist(), m.transfer_ns.tolist()) == ([0, 0], [5000, 5000])


def test_unequal_numbers_of_messages_without_an_answer_are_counted(tmp_path: Path) -> None:
    lines = [Timeline(rank=r, world=2) for r in range(2)]
    for k in range(3):
        lines[0].device(100 * k, 100, KERNEL, stream=COMM_STREAM, **told("send", peer=1))
    lines[1].device(0, 300, KERNEL, stream=COMM_STREAM, **told("recv", peer=0))
    traces = load(tmp_path, lines)
    assert traces.matched == []
    assert {p.code: p.count for p in traces.run_diagnostics}["point_to_point"] == 4
    assert all(p.unknown_ns == p.exposed_ns for p in traces.comm_parts)


def ring(late: int, by: float, *, described: bool) -> list[Timeline]:
    """Four ranks, each sends to the next and receives from the one before in one kernel: 100 us once both are there."""
    lines = [Timeline(rank=r, world=4) for r in range(4)]
    for k in range(3):
        starts = [1000 * k + 100 + (by if r == late else 0) for r in range(4)]
        for r, line in enumerate(lines):
            end = max(starts[r], starts[r - 1], starts[(r + 1) % 4]) + 100
            launch = 1000 * k + 50
            line.device(1000 * k, starts[r] - 1000 * k, launched=1000 * k)
            line.device(starts[r], end - starts[r], KERNEL, stream=COMM_STREAM, launched=launch + 20)
            if described:
                for n, (op, peer) in enumerate((("send", (r + 1) % 4), ("recv", (r - 1) % 4))):
                    line.operator("record_param_comms", launch + n, 0.5, **told(op, peer=peer, group="cp"))
                line.operator("record_param_comms", launch + 15, 10,
                              **{**told("send", peer=0, group="cp"), "Collective name": "coalesced", "Dst Rank": -1})  # fmt: skip
    return lines


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("late", [0, 3])
def test_in_a_ring_only_neighbours_wait(tmp_path: Path, late: int, described: bool) -> None:
    traces = load(tmp_path, ring(late, 80, described=described))
    assert len(traces.matched) == 3
    before, after = (late - 1) % 4, (late + 1) % 4
    for m in traces.matched:
        waits = dict(zip(m.ranks, m.wait_ns.tolist(), strict=True))
        assert waits == {r: 80_000 if r in (before, after) else 0 for r in range(4)}
        assert m.transfer_ns.tolist() == [100_000] * 4
        assert dict(zip(m.ranks, m.waits_for.tolist(), strict=True))[before] == late
        assert not m.bubble
    assert (traces.stragglers[0].rank, traces.stragglers[0].cost_ns) == (late, 2 * 160_000)
    assert all(s.cost_ns == 0 for s in traces.stragglers[1:])


def test_a_batch_of_messages_is_told_by_what_the_host_says_of_each(tmp_path: Path) -> None:
    traces = load(tmp_path, ring(1, 80, described=True))
    assert {p.code for p in traces.run_diagnostics} == {"first_collective"}
    assert {r.bytes for r in traces.collective_rows} == {3 * 4000}


def test_kernels_of_unknown_ends_that_are_not_together_are_not_matched(tmp_path: Path) -> None:
    lines = [Timeline(rank=r, world=3) for r in range(3)]
    for k in range(4):
        for r, line in enumerate(lines):
            line.device(1000 * k + 300 * r, 50, KERNEL, stream=COMM_STREAM)
    traces = load(tmp_path, lines)
    assert traces.matched == []
    assert {p.code: p.count for p in traces.run_diagnostics}["point_to_point"] == 12
