"""The parts of the exposed communication: they sum to it, whatever overlaps whatever."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.timelines import ALL_REDUCE, COMM_STREAM, Timeline
from support.tracefiles import make_job
from wirecost.trace import read


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_they_sum_to_the_exposed_communication_of_each_iteration(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw = random.Random(seed)
    folder = tmp_path_factory.mktemp("parts")
    for rank in range(2):
        line = Timeline(rank=rank, world=2)
        for k in range(3):
            line.step(k, 1000 * k, 1000)
            for n in range(3):
                line.device(1000 * k + draw.randrange(900), draw.randrange(1, 300), launched=1000 * k + n)
                line.device(1000 * k + draw.randrange(900), draw.randrange(1, 300), ALL_REDUCE,
                            stream=COMM_STREAM + draw.randrange(2), launched=1000 * k + 20 + n)  # fmt: skip
        line.write(folder)
    traces = read(folder)
    exposed = {(t.rank, i.window.name): i.parts for t in traces.traces for i in t.iterations}
    assert len(traces.comm_parts) == len(exposed) == 6
    for parts in traces.comm_parts:
        want = exposed[parts.rank, parts.iteration]
        assert (parts.window_ns, parts.exposed_ns) == (want.window_ns, want.exposed_comm_ns)
        assert parts.transfer_ns + parts.wait_ns + parts.bubble_ns + parts.unknown_ns == parts.exposed_ns
        assert min(parts.transfer_ns, parts.wait_ns, parts.bubble_ns, parts.unknown_ns) >= 0


def test_the_wait_that_compute_hides_is_no_exposed_wait(tmp_path: Path) -> None:
    """Rank 0 waits 60 us for rank 1, of which compute hides the first 40."""
    for rank, (compute, start) in enumerate([(140, 100), (160, 160)]):
        line = Timeline(rank=rank, world=2)
        line.device(0, compute)
        line.device(start, 200 - start, ALL_REDUCE, stream=COMM_STREAM)
        line.write(tmp_path)
    waiting, late = read(tmp_path).comm_parts
    assert (waiting.exposed_ns, waiting.wait_ns, waiting.transfer_ns) == (60_000, 20_000, 40_000)
    assert (late.exposed_ns, late.wait_ns, late.transfer_ns) == (40_000, 0, 40_000)


def test_one_rank_alone_knows_no_parts(tmp_path: Path) -> None:
    (made,) = make_job(2, 2, seed=5)[:1]
    (tmp_path / "rank0.json").write_bytes(made.text)
    parts = read(tmp_path).comm_parts
    assert len(parts) == 2
    assert all(p.unknown_ns == p.exposed_ns for p in parts)
    assert any(p.exposed_ns for p in parts)
