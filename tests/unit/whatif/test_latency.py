"""What a message takes besides its bytes: learned from small messages of the recording, for networks that state none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ddp_traces import Job as Recorded
from support.ddp_traces import write_job
from wirecost.spec import Emulation, Network
from wirecost.whatif.answer import answer_to
from wirecost.whatif.graph import build
from wirecost.whatif.job import Job
from wirecost.whatif.latency import SMALL_BYTES, Latency, learned_latency, steps_of
from wirecost.whatif.network import StatedNetwork, stated_network
from wirecost.whatif.nodes import Collective, Graph
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks
from wirecost.whatif.study_cells import emulated_network
from wirecost.whatif.sweep import sweep

GIGABIT = 1e9
SMALL = Recorded(elements=1024, transfer_us=200)
"""Sixteen all-reduces of 4 KiB over two ranks: at 1 Gb/s their bytes take 32.8 us, and each of two steps 83.6 more."""
STEP_S = (200e-6 - 4096 * 8 / GIGABIT) / 2


def graph_of(folder: Path, recorded: Recorded) -> Graph:
    return build(read_ranks([write_job(folder, recorded)]))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("job"), SMALL)


def with_collectives(graph: Graph, collectives: list[Collective]) -> Graph:
    return replace(graph, collectives=collectives)


@pytest.mark.parametrize(
    ("op", "size", "steps"),
    [
        ("all_reduce", 4, 6), ("all_gather", 4, 3), ("reduce_scatter", 2, 1), ("all_to_all", 8, 7), ("barrier", 2, 2),
        ("broadcast", 8, 3), ("broadcast", 5, 3), ("send_recv", 2, 1), ("all_reduce", 1, 0),
    ],
)  # fmt: skip
def test_a_ring_has_a_step_for_each_other_rank(op: str, size: int, steps: int) -> None:
    assert steps_of(op, size) == steps


@given(
    step_us=st.floats(5, 150), rate_bps=st.floats(1e9, 1e12), size=st.integers(64, 4096), ranks=st.integers(2, 4)
)
def test_transfers_that_follow_the_formula_tell_their_latency(
    graph: Graph, step_us: float, rate_bps: float, size: int, ranks: int
) -> None:
    bytes_s = 2 * (ranks - 1) / ranks * size * 8 / rate_bps
    seconds = bytes_s + 2 * (ranks - 1) * step_us * 1e-6
    known = learned_latency(
        with_collectives(
            graph,
            [replace(c, bytes=size, size=ranks, transfer_ns=round(seconds * 1e9)) for c in graph.collectives],
        ),
        rate_bps / 8,
    )
    assert known.is_known == (bytes_s <= 0.5 * round(seconds * 1e9) * 1e-9)
    if known.is_known:
        assert known.of_any == pytest.approx((step_us * 1e-6,) * 3, abs=2e-9)
        assert known.of("all_reduce", 2)[1] == pytest.approx(2 * step_us * 1e-6, abs=4e-9)


def test_large_messages_tell_no_latency(graph: Graph) -> None:
    # Over a fast link they are far from its rate, which is no latency.
    for size, is_known in ((SMALL_BYTES, True), (SMALL_BYTES + 4, False)):
        collectives = [replace(c, bytes=size) for c in graph.collectives]
        assert learned_latency(with_collectives(graph, collectives), 1e11).is_known == is_known


def test_without_a_known_rate_the_fastest_transfer_is_taken_for_it(graph: Graph) -> None:
    assert not learned_latency(graph, None).is_known  # all of one size: bytes and latency can't be told apart
    larger = [replace(c, bytes=1 << 22) if i % 2 else c for i, c in enumerate(graph.collectives)]
    found = learned_latency(with_collectives(graph, larger), None)
    assert found.of_any[1] == pytest.approx(100e-6, rel=0.01)


def test_what_the_recorded_network_delays_is_not_learned(graph: Graph) -> None:
    plain, delayed = (learned_latency(graph, GIGABIT / 8, delay_s) for delay_s in (0.0, 50e-6))
    assert plain.of_any[1] == pytest.approx(STEP_S, rel=1e-3)
    assert delayed.of_any[1] == pytest.approx(STEP_S - 50e-6, rel=1e-3)
    assert learned_latency(graph, GIGABIT / 8, 1.0).of_any == (0.0, 0.0, 0.0)


def test_messages_that_share_the_link_tell_nothing(graph: Graph) -> None:
    together = [replace(c, transfer_ns=5_000_000) for c in graph.collectives]
    assert not learned_latency(with_collectives(graph, together), 1e11).is_known


def test_few_messages_tell_nothing(graph: Graph) -> None:
    few = [c if i < 7 else replace(c, bytes=None) for i, c in enumerate(graph.collectives)]
    assert not learned_latency(with_collectives(graph, few), GIGABIT / 8).is_known


def test_other_operations_have_no_latency_but_an_upper_bound() -> None:
    found = Latency({"all_gather": (1e-3, 2e-3, 3e-3)}, (1e-3, 2e-3, 3e-3))
    assert found.of("all_gather", 3) == (2e-3, 4e-3, 6e-3)
    assert found.of("all_reduce", 2) == (0.0, 0.0, 2e-3)
    assert found.scaled(0.5).of("all_gather", 2) == (0.5e-3, 1e-3, 1.5e-3)
    assert Latency().of("all_reduce", 2) == (0.0, 0.0, 0.0)


def job(folder: Path, recorded_on: StatedNetwork | None) -> Job:
    return Job(read_ranks([write_job(folder, SMALL)]), recorded_on=recorded_on)


def test_a_network_that_states_no_latency_has_that_of_the_recording(tmp_path: Path) -> None:
    recorded = job(tmp_path, stated_network(GIGABIT, None))
    # The last all-reduce of a step is exposed.
    expected_ms = recorded.replay().iteration_ms + (2 * STEP_S + 4096 * 8 / 10e9 - 200e-6) * 1e3
    answer = answer_to(recorded, Question(bandwidth_bps=10e9))
    assert answer.iteration_ms == pytest.approx(expected_ms, abs=2e-3)
    assert [d.code for d in answer.diagnostics] == ["latency_learned"]
    assert "takes 83.6 µs besides its bytes" in answer.diagnostics[0].message
    points = sweep(recorded, Question(), "1 Gb/s:10 Gb/s").points
    assert points[-1].iteration_ms == pytest.approx(expected_ms, abs=2e-3)


def test_a_stated_latency_stays_as_it_is(tmp_path: Path) -> None:
    recorded = job(tmp_path, stated_network(GIGABIT, None))
    replayed_ms = recorded.replay().iteration_ms
    for latency_s in (0.0, 1e-3):
        answer = answer_to(recorded, Question(bandwidth_bps=10e9, latency_s=latency_s))
        assert answer.iteration_ms is not None
        assert answer.iteration_ms > replayed_ms if latency_s else answer.iteration_ms < replayed_ms - 0.19
        assert answer.diagnostics == []


def test_a_recording_without_small_messages_leaves_the_latency_unknown(tmp_path: Path) -> None:
    answer = answer_to(job(tmp_path, None), Question(bandwidth_bps=10e9))
    assert answer.diagnostics == []


def test_an_emulated_network_states_its_delay_and_no_latency(graph: Graph) -> None:
    network = Network(name="far", emulate=Emulation.model_validate({"rate": "1 Gb/s", "delay": "1 ms"}))
    found = emulated_network(network)
    assert found is not None
    assert found.latency_s is None
    learned = found.with_latency(learned_latency(graph, GIGABIT / 8))
    transfer = learned.transfer(graph.collectives[0])
    assert transfer is not None
    assert transfer.seconds == pytest.approx(200e-6 + 2 * 1e-3, rel=1e-3)
    assert emulated_network(Network(name="fast", emulate=Emulation())) is None
