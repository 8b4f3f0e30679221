"""What-if answers on jobs whose times follow by hand, and what bad input is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ddp_traces import Job as Recorded
from support.ddp_traces import write_job
from wirecost.errors import WirecostError
from wirecost.trace.source import TraceError
from wirecost.whatif.answer import answer_to
from wirecost.whatif.buckets import assigned
from wirecost.whatif.job import Job
from wirecost.whatif.network import fitted_network
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks
from wirecost.whatif.sweep import bandwidth_range, sweep


def job_of(tmp_path: Path, recorded: Recorded, **options: float | None) -> Job:
    return Job(read_ranks([write_job(tmp_path / "traces", recorded)]), **options)  # pyright: ignore[reportArgumentType]


def milliseconds(job: Job, **question: object) -> float:
    answer = answer_to(job, Question(**question))  # pyright: ignore[reportArgumentType]
    assert answer.iteration_ms is not None, answer.why_interval
    return answer.iteration_ms


@settings(max_examples=15, deadline=None)
@given(
    layers=st.integers(2, 6), kernel_us=st.integers(20, 2000), transfer_us=st.integers(20, 4000),
    host_us=st.integers(5, 60),
)  # fmt: skip
def test_a_recording_replays_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, layers: int, kernel_us: int, transfer_us: int, host_us: int
) -> None:
    recorded = Recorded(layers=layers, kernel_us=kernel_us, transfer_us=transfer_us, host_us=host_us)
    job = job_of(tmp_path_factory.mktemp("job"), recorded)
    assert abs(job.error) < 0.01
    assert job.counts().unmatched == 0


def test_transfers_twice_as_fast_save_half_of_what_is_exposed(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(kernel_us=1000, transfer_us=200))
    assert job.replay().iteration_ms - milliseconds(job, scale_communication=2) == pytest.approx(0.1, abs=1e-3)


def test_a_stated_network_bounds_the_iteration_by_its_transfers(tmp_path: Path) -> None:
    # 4 all-reduces of 4 MiB over 2 ranks at 1 GB/s: each rank sends 4 MiB, 4.194 ms.
    job = job_of(tmp_path, Recorded(kernel_us=1000))
    answer = answer_to(job, Question(bandwidth_bps=8e9))
    assert answer.iteration_ms is not None
    assert answer.iteration_ms == pytest.approx(4 * 4.194 + 1.1, abs=0.05)
    assert answer.bound_by == "network"
    assert answer.comm_fraction == pytest.approx(1 - 4.1 / answer.iteration_ms, abs=0.02)


def test_without_its_straggler_a_job_is_as_fast_as_one_without(tmp_path: Path) -> None:
    slow = job_of(tmp_path / "slow", Recorded(extra_us={1: 500.0}))
    even = job_of(tmp_path / "even", Recorded())
    assert slow.replay().iteration_ms > 6
    assert milliseconds(slow, without_straggler=True) == pytest.approx(even.replay().iteration_ms, rel=1e-3)
    assert milliseconds(slow, like_rank=1) == pytest.approx(slow.replay().iteration_ms, rel=1e-3)
    assert next(iter(slow.straggler_ms())) == 1


def test_a_larger_bucket_waits_for_its_last_gradient(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(layers=4, transfer_us=200))
    # Two gradients of 4 MiB a bucket: the last all-reduce moves twice the bytes after the last gradient.
    assert milliseconds(job, bucket_mib=8) - job.replay().iteration_ms == pytest.approx(0.2, abs=0.02)
    assert milliseconds(job, bucket_mib=1) == pytest.approx(job.replay().iteration_ms, rel=1e-3)


def test_without_overlap_every_transfer_is_exposed(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(layers=4, transfer_us=200))
    assert milliseconds(job, overlap=False) - job.replay().iteration_ms == pytest.approx(3 * 0.2, abs=0.03)


def test_a_job_that_waits_for_its_host_gets_an_interval_without_its_step_time(tmp_path: Path) -> None:
    recorded = Recorded(kernel_us=30, transfer_us=20)
    answer = answer_to(job_of(tmp_path / "a", recorded), Question(scale_communication=2))
    assert answer.iteration_ms is None
    assert answer.low_ms < answer.high_ms <= 2 * answer.low_ms
    assert answer.why_interval is not None and "--step-time" in answer.why_interval
    known = job_of(tmp_path / "b", recorded, step_time_ns=0.45e6)
    assert known.host.known
    assert known.replay().iteration_ms == pytest.approx(0.45, rel=0.01)
    assert answer_to(known, Question(scale_communication=2)).iteration_ms == pytest.approx(0.45, rel=0.02)


def test_a_step_time_tells_nothing_of_the_host_where_the_network_bounds(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(kernel_us=30, transfer_us=3000), step_time_ns=12.3e6)
    assert not job.host.known
    answer = answer_to(job, Question(bandwidth_bps=1e15))
    assert answer.iteration_ms is None and answer.low_ms < answer.high_ms


def test_one_rank_of_two_is_replayed_and_said_to_be_one(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "traces", Recorded())
    job = Job(read_ranks([folder / "rank0.json"]))
    assert [d.code for d in job.diagnostics] == ["ranks_missing"]
    assert abs(job.error) < 0.01
    with pytest.raises(WirecostError, match="one rank's trace says nothing of stragglers"):
        answer_to(job, Question(without_straggler=True))


def test_a_trace_without_launches_is_refused(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "traces", Recorded())
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
        path.write_text(json.dumps(document))
    with pytest.raises(TraceError, match=r"no launch of any kernel is recorded.*ProfilerActivity\.CPU"):
        read_ranks([folder])


def test_a_truncated_trace_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "traces", Recorded(steps=6))
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        path.write_text(text[: int(len(text) * 0.7)])
    job = Job(read_ranks([folder]))
    assert job.graph.step_count >= 3
    assert answer_to(job, Question(scale_communication=2)).high_ms > 0


def test_ranks_that_show_other_steps_are_not_joined(tmp_path: Path) -> None:
    first = write_job(tmp_path / "a", Recorded(steps=4))
    second = write_job(tmp_path / "b", Recorded(steps=4, layers=5))
    (second / "rank0.json").write_text((first / "rank0.json").read_text())
    job = Job(read_ranks([second]))
    assert job.counts().unmatched > 0
    assert "unmatched" in [d.code for d in job.diagnostics] or job.graph.unmatched > 0


def test_changes_that_a_job_does_not_allow_are_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded())
    for question, words in (
        (Question(reshard_after_forward=False), "no all-gather in the backward pass"),
        (Question(scale_communication=0), "must be positive"),
        (Question(bucket_mib=-1), "must be positive"),
        (Question(faster_host=0), "must be positive"),
        (Question(like_rank=7), "the traces hold ranks 0, 1"),
        (Question(network="nowhere"), "unknown network 'nowhere'"),
    ):
        with pytest.raises(WirecostError, match=words):
            answer_to(job, question)


def test_an_export_of_another_profiler_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [{"ph": "X", "name": "step", "ts": 1, "dur": 2}]}'))
    with pytest.raises(TraceError, match="no device events"):
        read_ranks([path])


def test_a_sweep_finds_the_knee_where_transfers_are_hidden(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(kernel_us=1000))
    found = sweep(job, Question(), "1 Gb/s:1000 Gb/s")
    times = [p.iteration_ms for p in found.points]
    assert times == sorted(times, reverse=True)
    # Hidden behind a kernel of 1 ms: 4.194 MB / 1 ms are 33.6 Gb/s; the last one stays exposed.
    assert found.knee_bps is not None and 33e9 < found.knee_bps < 250e9
    for text in ("", "1 Gb/s", "5 Gb/s:1 Gb/s", "a:b"):
        with pytest.raises(WirecostError, match="range is like"):
            bandwidth_range(text)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=50), st.floats(0.5, 200))
def test_buckets_hold_every_gradient_once_and_close_at_their_cap(sizes: list[float], cap: float) -> None:
    buckets = assigned(sizes, cap)
    assert [g for bucket in buckets for g in bucket] == list(range(len(sizes)))
    for bucket in buckets[:-1]:
        assert sum(sizes[g] for g in bucket) >= cap
        assert len(bucket) == 1 or sum(sizes[g] for g in bucket[:-1]) < cap


def test_the_fitted_network_repeats_the_jobs_own_transfers(tmp_path: Path) -> None:
    job = job_of(tmp_path, Recorded(transfer_us=200))
    network = fitted_network(job.graph.collectives)
    transfers = [network.transfer(c) for c in job.graph.collectives]
    assert transfers and all(t is not None and t.seconds == pytest.approx(200e-6, rel=1e-3) for t in transfers)
