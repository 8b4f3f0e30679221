"""Why communication isn't hidden: each cause provoked on a GPU played from first principles, and no false one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.simulated import Gpu
from support.timelines import ALL_REDUCE, COMM_STREAM, COMPUTE_STREAM, Timeline
from wirecost.trace import TraceSet, read
from wirecost.trace.causes import CAUSES, CODES

STEPS = 4
# What is exposed besides by latencies, over all: launches, and the last bucket of a job that has one.
_NOISE = 0.15


def shares(traces: TraceSet) -> dict[str, float]:
    return {c.code: c.share for c in traces.causes}


def steps(gpu: Gpu, body: Callable[[Gpu], None]) -> None:
    for _ in range(STEPS):
        gpu.begin()
        body(gpu)
        gpu.finish()


def buckets(gpu: Gpu, transfer: float, count: int = 4) -> None:
    """Backward in `count` parts of 400 us, each followed by its bucket's all-reduce, as DistributedDataParallel does."""
    gpu.compute(800, 8)
    ends = []
    for _ in range(count):
        gpu.compute(400, 8)
        ends.append(gpu.collective(transfer))
    for end in ends:
        gpu.join(end)


def last_bucket(gpu: Gpu) -> None:
    buckets(gpu, 200)


def longer_than_compute(gpu: Gpu) -> None:
    buckets(gpu, 2000, count=6)


def one_bucket(gpu: Gpu) -> None:
    buckets(gpu, 300, count=1)


def first_gather(gpu: Gpu) -> None:
    """Parameters gathered one layer ahead, as FSDP prefetches: only the first gather has nothing to hide behind."""
    end = gpu.collective(200, name="ncclDevKernel_AllGather_RING_LL(x)")
    for layer in range(5):
        gpu.join(end)
        if layer < 4:
            end = gpu.collective(200, name="ncclDevKernel_AllGather_RING_LL(x)")
        gpu.compute(400, 4)


def dependency(gpu: Gpu) -> None:
    """Tensor parallel: each all-reduce's result is what the next product needs."""
    for _ in range(6):
        gpu.compute(300, 3)
        gpu.join(gpu.collective(150))
    gpu.compute(100)


def dependency_of_the_host(gpu: Gpu) -> None:
    for _ in range(6):
        gpu.compute(300, 3)
        gpu.collective(150)
        gpu.synchronize()
    gpu.compute(100)


def late_collective(gpu: Gpu) -> None:
    """The host does something else before each all-reduce, so the device has run out of work by then."""
    gpu.compute(400, 4)
    for _ in range(3):
        gpu.compute(400, 4)
        gpu.synchronize()
        gpu.sleep(900)
        gpu.join(gpu.collective(300))


def late_compute(gpu: Gpu) -> None:
    """The collective starts in time; the compute that could hide it isn't launched before it has ended."""
    gpu.compute(300, 3)
    gpu.synchronize()
    for _ in range(4):
        end = gpu.collective(300)
        gpu.sleep(250)
        gpu.compute(300, 3)
        gpu.sleep(330)
        gpu.join(end)


def same_stream(gpu: Gpu) -> None:
    for _ in range(5):
        gpu.compute(300, 3)
        gpu.collective(150, stream=COMPUTE_STREAM)
    gpu.compute(100)


def connections(gpu: Gpu) -> None:
    """Two collectives in a row before compute that needs neither: with one queue it waits for the first to end."""
    gpu.compute(200, 2)
    for _ in range(4):
        first = gpu.collective(300)
        second = gpu.collective(10)
        gpu.compute(400, 4)
        gpu.join(first)
        gpu.join(second)
    gpu.compute(50)


PROVOKED: list[tuple[Callable[[Gpu], None], str]] = [
    (last_bucket, "last_bucket"),
    (one_bucket, "last_bucket"),
    (first_gather, "first_gather"),
    (longer_than_compute, "longer_than_compute"),
    (dependency, "dependency"),
    (dependency_of_the_host, "dependency"),
    (late_collective, "launched_late"),
    (late_compute, "launched_late"),
    (same_stream, "same_stream"),
]


@pytest.mark.parametrize(("body", "cause"), PROVOKED)
def test_what_was_provoked_is_the_answer_and_hardly_anything_else(
    tmp_path: Path, body: Callable[[Gpu], None], cause: str
) -> None:
    gpu = Gpu()
    steps(gpu, body)
    traces = gpu.read(tmp_path)
    got = shares(traces)
    allowed = {"last_bucket"} if cause == "longer_than_compute" else set()
    assert got.get(cause, 0) > 0.5, got
    assert sum(share for code, share in got.items() if code != cause and code not in allowed) <= _NOISE, got
    assert traces.exposed[0].cause == cause
    assert sum(c.exposed_ns for c in traces.causes) == sum(p.exposed_ns for p in traces.comm_parts)


def test_one_hardware_queue_serialises_what_does_not_depend(tmp_path: Path) -> None:
    free, bound = Gpu(), Gpu(one_connection=True)
    steps(free, connections)
    steps(bound, connections)
    (tmp_path / "free").mkdir()
    (tmp_path / "bound").mkdir()
    hidden, serialised = free.read(tmp_path / "free"), bound.read(tmp_path / "bound")
    total = [sum(c.exposed_ns for c in t.causes) for t in (hidden, serialised)]
    assert total[1] > 5 * total[0]
    assert shares(serialised)["serialised_connections"] > 0.7, shares(serialised)
    assert "serialised_connections" not in shares(hidden)


def test_a_late_host_is_told_with_what_it_waited_in(tmp_path: Path) -> None:
    def body(gpu: Gpu) -> None:
        gpu.compute(300)
        gpu.line.host("cudaMemcpy", gpu.now, 1500)
        gpu.sleep(1500)
        gpu.join(gpu.collective(300))
        gpu.compute(100)

    gpu = Gpu()
    steps(gpu, body)
    (late, *_) = gpu.read(tmp_path).causes
    assert (late.code, late.rank, late.host_call) == ("launched_late", 0, "cudaMemcpy")


def test_waiting_for_another_rank_is_told_from_moving_data(tmp_path: Path) -> None:
    """Rank 1 computes 500 us longer before each all-reduce, which takes 100 us: rank 0 waits for it."""
    lines = [Timeline(rank=r, world=2) for r in range(2)]
    for k in range(4):
        at = 2000 * k
        for r, line in enumerate(lines):
            line.step(k, at, 2000)
            line.device(at + 10, 300 + 500 * r, launched=at)
            start, end = at + 310 + 500 * r, at + 910
            line.device(start, end - start, ALL_REDUCE, stream=COMM_STREAM, launched=at + 5)
            line.device(end, 200, launched=at + 10)
    for line in lines:
        line.write(tmp_path)
    traces = read(tmp_path)
    waiting = traces.causes[0]
    assert (waiting.code, waiting.rank, waiting.exposed_ns) == ("waiting_for_rank", 1, 4 * 500_000)
    assert sum(c.exposed_ns for c in traces.causes) == 4 * 700_000


def test_a_collective_that_is_hidden_but_for_gaps_says_so(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=2)
    for k in range(20):
        line.device(100 * k, 95, launched=100 * k - 50)
    line.device(50, 1800, ALL_REDUCE, stream=COMM_STREAM, launched=10)
    (cause,) = read(line.write(tmp_path)).causes
    assert (cause.code, cause.exposed_ns) == ("gaps", 18 * 5_000)


def test_without_launches_the_cause_is_unknown_unless_time_alone_tells(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=2)
    for k in range(3):
        line.device(1000 * k, 300)
        line.device(1000 * k + 300, 200, ALL_REDUCE, stream=COMM_STREAM)
        line.device(1000 * k + 500, 100)
    (cause,) = read(line.write(tmp_path)).causes
    assert cause.code == "unknown"
    line = Timeline(rank=0, world=2)
    for k in range(3):
        line.device(1000 * k, 300)
        line.device(1000 * k + 100, 500, ALL_REDUCE, stream=COMM_STREAM)
    assert [c.code for c in read(line.write(tmp_path)).causes] == ["longer_than_compute"]


def test_every_code_has_a_sentence() -> None:
    assert set(CODES) == set(CAUSES)


def test_compute_beside_communication_is_compared_with_compute_alone(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=2)
    for k in range(20):
        line.device(1000 * k, 100, grid=[8, 1, 1])
        line.device(1000 * k + 200, 400, ALL_REDUCE, stream=COMM_STREAM, grid=[24, 1, 1])
        line.device(1000 * k + 300, 115, grid=[8, 1, 1])
        line.device(1000 * k + 450, 300, grid=[99, 1, 1])  # of another size: partly beside it, never compared
    (found,) = read(line.write(tmp_path)).traces[0].slowdowns
    assert (found.op, found.kernels, found.extra_ns) == ("all_reduce", 20, 20 * 15_000)
    assert found.ratio == pytest.approx(1.15)
