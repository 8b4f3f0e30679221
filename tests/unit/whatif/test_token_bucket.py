"""A shaped link lets the bytes that fit into its token bucket through at once: between none of them and all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ddp_traces import Job as Recorded
from support.ddp_traces import write_job
from wirecost.emulation.hosts import burst_bytes
from wirecost.spec import Emulation, Network
from wirecost.whatif.answer import answer_to
from wirecost.whatif.changes import scaled_communication, with_network
from wirecost.whatif.job import Job
from wirecost.whatif.measure import iteration_ns
from wirecost.whatif.network import stated_network
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks
from wirecost.whatif.scenario import Scenario
from wirecost.whatif.simulate import Speeds, _Joins
from wirecost.whatif.study_cells import emulated_network

RATE_BPS = 8e9
TRANSFER_MS = 4.194
"""4 MiB at 1 GB/s."""
SHAPED = replace(stated_network(RATE_BPS, 0.0, name="shaped"), bucket_bytes=0.5e6)
"""A bucket of 0.5 ms."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(read_ranks([write_job(tmp_path, Recorded(kernel_us=1000))]), networks={"shaped": SHAPED})


def milliseconds(scenario: Scenario, transfer_ns: list[float] | None = None) -> float:
    return iteration_ns(scenario, Speeds(), transfer_ns) * 1e-6


def test_a_link_that_was_idle_passes_a_bucket_at_once(job: Job) -> None:
    plain = milliseconds(with_network(job.recorded, stated_network(RATE_BPS, 0.0)))
    assert plain == pytest.approx(4 * TRANSFER_MS + 1.1, abs=0.05)
    shaped = with_network(job.recorded, SHAPED)
    # Once an iteration the link is idle, until the first gradient is there.
    assert milliseconds(*shaped.shortest()) == pytest.approx(plain - 0.5, abs=0.02)
    assert milliseconds(shaped) == pytest.approx(plain - 0.25, abs=0.02)
    assert milliseconds(*shaped.longest()) == pytest.approx(plain, abs=1e-3)


def test_an_answer_lies_between_a_full_bucket_and_none(job: Job) -> None:
    small = replace(SHAPED, bucket_bytes=50e3)
    job.networks["small"] = small
    assert answer_to(job, Question(network="small")).iteration_ms is not None  # within 2 %
    answer = answer_to(job, Question(network="shaped"))
    assert answer.iteration_ms is None
    assert answer.why_interval == "transfer times on this network aren't known better"
    assert answer.low_ms < 4 * TRANSFER_MS + 1.1 - 0.5 < 4 * TRANSFER_MS + 1.1 < answer.high_ms


def test_faster_transfers_leave_a_bucket_less_time(job: Job) -> None:
    twice = scaled_communication(with_network(job.recorded, SHAPED), 2.0)
    assert twice.bucket_ns == pytest.approx(0.25e6)
    assert twice.wire_ns[0] == pytest.approx(TRANSFER_MS / 2 * 1e6, rel=1e-3)


def test_an_emulated_network_has_its_shapers_bucket() -> None:
    found = emulated_network(Network(name="slow", emulate=Emulation.model_validate({"rate": "100 Mb/s"})))
    assert found is not None
    assert found.bucket_bytes == burst_bytes(100e6)
    assert found.bucket_s == pytest.approx(burst_bytes(100e6) * 8 / 100e6)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 5)), min_size=1, max_size=20),
    st.floats(0.1, 40),
)
def test_no_more_than_the_rate_and_one_bucket_pass(
    messages: list[tuple[float, float, float]], bucket_ns: float
) -> None:
    """Each message begins `pause` after the one before; its bytes take `wire` at the link's rate, and `latency`."""
    transfers = [wire + latency for _, wire, latency in messages]
    joins = _Joins(
        Speeds(shared=True, bucket_ns=bucket_ns), transfers, [1] * len(messages), [m[1] for m in messages], 1
    )
    at = sent = 0.0
    for number, (pause, wire, latency) in enumerate(messages):
        begun = at + pause
        at = joins.arrive((number, 0), 0, begun)
        sent += wire
        assert latency - 1e-9 <= at - begun <= wire + latency + 1e-9
        assert sent <= bucket_ns + at + 1e-6
    assert sent == pytest.approx(sum(wire for _, wire, _ in messages))
