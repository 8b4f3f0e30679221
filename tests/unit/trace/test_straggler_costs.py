"""What an iteration takes with no rank slower than the others, on jobs whose times follow by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.simulated_jobs import AllReduce, Busy, Kernel, Send, Wait, simulate
from wirecost.trace import read
from wirecost.trace.operation_kinds import kind_of
from wirecost.trace.result import TraceSet
from wirecost.trace.straggler_costs import OPERATION, RANK, STAGE

MS = 1_000_000


def job(folder: Path, **options: object) -> TraceSet:
    return read(simulate(folder, **options))  # pyright: ignore[reportArgumentType]


def work(extra: dict[int, int]) -> list:
    return [Kernel(lambda rank, _: 10 * MS + extra.get(rank, 0)), AllReduce(2 * MS), Wait(), Kernel(MS)]


def test_a_slow_rank_costs_what_it_computes_longer(tmp_path: Path) -> None:
    costs = job(tmp_path, program=work({2: 4 * MS}), ranks=4).straggler_costs
    assert costs.iteration_ns is not None and costs.ideal_ns is not None
    assert costs.iteration_ns - costs.ideal_ns == pytest.approx(4 * MS, rel=0.01)
    assert next((c.name, round(c.cost_ns / MS, 1)) for c in costs.of(RANK)) == ("2", 4.0)
    assert all(c.cost_ns < 0.01 * MS for c in costs.of(RANK)[1:])
    assert costs.of(OPERATION)[0].name == "matrix products"
    assert "rank 2 alone costs 4.0 ms, mostly in matrix products" in costs.sentence


def test_two_slow_ranks_cost_each_what_it_would_cost_alone(tmp_path: Path) -> None:
    costs = job(tmp_path, program=work({0: 3 * MS, 3: 2 * MS}), ranks=4).straggler_costs
    assert [round(c.cost_ns / MS, 1) for c in costs.of(RANK)] == [3.0, 2.0, 0.0, 0.0]


def test_a_slow_host_costs_idle_time_of_its_device(tmp_path: Path) -> None:
    program = [Busy(lambda rank, _: 5 * MS * (rank == 1)), *work({}), Busy(8 * MS)]
    costs = job(tmp_path, program=program).straggler_costs
    assert costs.of(RANK)[0].name == "1"
    assert costs.of(OPERATION)[0].name == "idle time of the device"


def test_equal_ranks_cost_nothing(tmp_path: Path) -> None:
    costs = job(tmp_path, program=work({})).straggler_costs
    assert costs.sentence.startswith("no rank is slower than the others")


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_stage_with_more_work_costs_what_balancing_would_save(tmp_path: Path, slow: int) -> None:
    stage = lambda rank, _: 10 * MS + 6 * MS * (rank == slow)  # noqa: E731
    program = [Kernel(stage), Send(MS // 10, [(0, 1)]), Wait(), Kernel(stage), Send(MS // 10, [(1, 2)]), Wait()]
    costs = job(tmp_path, program=program, ranks=3).straggler_costs
    assert costs.unknown is None
    assert costs.of(STAGE)[0].name == str(slow)
    assert costs.of(STAGE)[0].cost_ns > 5 * MS


def test_ranks_of_one_host_are_added_up_where_files_name_it(tmp_path: Path) -> None:
    simulate(tmp_path, work({2: 4 * MS, 3: 4 * MS}), ranks=4)
    for rank in range(4):
        (tmp_path / f"rank{rank}.json").rename(tmp_path / f"node{rank // 2}_41{rank}.17000{rank}.pt.trace.json")
    costs = read(tmp_path).straggler_costs
    assert [(c.name, round(c.cost_ns / MS)) for c in costs.of("host")] == [("node1", 4), ("node0", 0)]


def test_hosts_are_those_that_the_traces_name(tmp_path: Path) -> None:
    simulate(tmp_path, work({3: 4 * MS}), ranks=4)
    for rank in range(4):
        path = tmp_path / f"rank{rank}.json"
        path.write_bytes(path.read_bytes().replace(b"{", b'{"host_name": "node%d",' % (rank // 2), 1))
    costs = read(tmp_path).straggler_costs
    assert [(c.name, round(c.cost_ns / MS)) for c in costs.of("host")] == [("node1", 4), ("node0", 0)]


def test_one_rank_says_nothing_of_stragglers(tmp_path: Path) -> None:
    simulate(tmp_path, work({}), ranks=2)
    costs = read(tmp_path / "rank0.json").straggler_costs
    assert costs.iteration_ns is None and costs.costs == []
    assert "one rank of 2" in costs.sentence


def test_the_first_step_alone_says_nothing_of_stragglers(tmp_path: Path) -> None:
    assert "two recorded steps" in job(tmp_path, program=work({}), iterations=1).straggler_costs.sentence


def test_the_summary_the_json_and_the_page_hold_them(tmp_path: Path) -> None:
    simulate(tmp_path, work({1: 4 * MS}))
    traces = read(tmp_path, timeline=True)
    assert any(line.startswith("Stragglers: with no rank slower") for line in traces.summary)
    found = json.loads(json.dumps(traces.to_dict()))["without_stragglers"]
    assert found["costs"][0]["of"] == "rank" and found["unknown"] is None
    from wirecost.trace.html import render_html

    assert "with no rank slower than the others" in render_html(traces)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", "matrix products"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        ("at::native::vectorized_elementwise_kernel", "other kernels"),
        ("at::native::multi_tensor_apply_kernel", "optimizer"),
    ],
)
def test_kernels_are_of_the_kind_that_their_names_say(name: str, kind: str) -> None:
    assert kind_of(name) == kind
