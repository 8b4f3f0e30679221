"""Solving for bandwidth and batch, sweeps, and the at-scale study's projection."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.model import comm_fraction, made, predicted
from wirecost.breakdown import Breakdown, Iteration, Parts, Source
from wirecost.errors import SpecError
from wirecost.prediction import need
from wirecost.prediction.job import JobOptions, setup_of
from wirecost.prediction.predict import predict
from wirecost.prediction.projection import network_efficiency, project
from wirecost.prediction.ranges import comm_fraction_range, variants
from wirecost.prediction.sweep import parse_axis, sweep, with_first_value
from wirecost.report.sweep_figure import write_sweep_figure
from wirecost.spec import stack_named
from wirecost.spec.plan import DataParallel
from wirecost.spec.stack_costs import LAUNCH_TIMES

ZERO3 = {"gpus": 64, "data_parallel": "zero3", "stack": "fsdp-flash"}


@given(st.floats(0.08, 0.6))
@settings(max_examples=15, deadline=None)
def test_the_needed_bandwidth_is_the_smallest(limit: float) -> None:
    found = need.bandwidth(made(**ZERO3), limit)
    if found.value is None:
        assert found.floor > limit
        return
    assert found.reached <= limit
    at = predicted(bandwidth=f"{0.99 * found.value:.0f} b/s", **ZERO3)
    assert comm_fraction(at) > limit


def test_what_no_bandwidth_can_reach_is_said() -> None:
    found = need.bandwidth(made(**ZERO3), 0.001)
    assert found.value is None
    assert found.floor > 0.001


def test_a_job_on_one_node_needs_no_network() -> None:
    setup = made(gpus=8, data_parallel="zero3", stack="fsdp-flash")
    within = need.bandwidth(setup, 0.9)
    assert (within.value, within.reached) == (0.0, need.fraction(setup))
    assert need.bandwidth(setup, 0.001).value is None


def test_accumulation_hides_gradients() -> None:
    setup = made(
        "gpt-2-large",
        "big-red-200",
        gpus=16,
        data_parallel="all_reduce",
        stack="megatron-lm-2021",
        precision="fp16",
    )
    found = need.accumulation(setup, 0.2)
    assert found.value is not None
    assert found.value > 1
    assert found.reached <= 0.2 < need.fraction(setup)


@pytest.mark.parametrize("limit", [0, 1, -0.5, 2])
def test_shares_outside_0_to_1_are_refused(limit: float) -> None:
    with pytest.raises(SpecError, match="comm fraction"):
        need.bandwidth(made(**ZERO3), limit)


def test_axes_are_lists_and_doubling_ranges() -> None:
    assert parse_axis("gpus=8,16") == ("gpus", ["8", "16"])
    assert parse_axis("gpus=8..64") == ("gpus", ["8", "16", "32", "64"])
    assert parse_axis("bandwidth=100Gb/s..400Gb/s") == ("bandwidth", ["100 Gb/s", "200 Gb/s", "400 Gb/s"])
    for text in ("gpu=1", "gpus", "gpus=", "gpus=8..2", "bandwidth=1..2", "gpus=0..8"):
        with pytest.raises(SpecError):
            parse_axis(text)


def test_a_sweep_keeps_what_cannot_be_with_its_reason(tmp_path: Path) -> None:
    points = sweep(made(**ZERO3), "gpus", ["8", "12", "64"])
    assert [p.prediction is None for p in points] == [False, True, False]
    assert "whole nodes" in (points[1].refused or "")
    for name in ("s.svg", "s.png"):
        write_sweep_figure(points, "gpus", "title", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(SpecError, match=r"\.png or a? ?\.svg|\.svg"):
        write_sweep_figure(points, "gpus", "title", tmp_path / "s.pdf")


def test_a_sweep_keeps_the_batch_that_was_given_and_says_which_it_has() -> None:
    base = made(**ZERO3, global_batch=128)
    kept = [p.row()["global_batch"] for p in sweep(base, "gpus", ["8", "64"])]
    assert kept == [128, 128]
    grown = [p.row()["global_batch"] for p in sweep(made(**ZERO3), "gpus", ["8", "64"])]
    assert grown[1] == 8 * grown[0]  # every rank keeps its micro-batches


def test_a_sweep_over_gpus_starts_from_its_first_number() -> None:
    axis, values = parse_axis("gpus=8..32")
    options: JobOptions = {"cluster": "dgx-h100", "global_batch": 32, "micro_batch": 1}
    assert setup_of("llama-3-8b", with_first_value(options, axis, values)).gpus == 8
    assert parse_axis("tp=1,2") == ("tensor_parallel", ["1", "2"])


def test_names_of_frameworks_and_short_names_are_accepted() -> None:
    for name in ("fsdp", "FSDP2", "zero-3", "full_shard"):
        assert DataParallel(name) is DataParallel.ZERO3
    assert DataParallel("distributed_optimizer") is DataParallel.ZERO1
    with pytest.raises(ValueError, match="'zero4' is not a valid"):
        DataParallel("zero4")
    options = {"cluster": "dgx-h100", "gpus": 16, "tp": 2, "data_parallel": "fsdp"}
    plan = setup_of("llama-3-8b", options).plan  # type: ignore[arg-type]
    assert (plan.tensor_parallel, plan.data_parallel) == (2, DataParallel.ZERO3)


def test_the_axis_of_a_sweep_is_labelled_with_its_values(tmp_path: Path) -> None:
    points = sweep(made(**ZERO3), "bandwidth", ["200 Gb/s", "400 Gb/s", "800 Gb/s"])
    write_sweep_figure(points, "bandwidth", "title", tmp_path / "s.svg")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "s.svg").read_text())
    title = "bandwidth of a node, Gb/s"
    assert texts[: texts.index(title)] == ["200", "400", "800"]
    assert texts.count(title) == 2


def measured(comm: int, compute: int, hidden: int = 0) -> Breakdown:
    parts = Parts(
        window_ns=comm + compute,
        compute_only_ns=compute - hidden,
        overlapped_ns=hidden,
        exposed_comm_ns=comm,
        exposed_memory_ns=0,
        idle_ns=0,
    )
    return Breakdown(
        source=Source.MEASURED, title="t", world_size=4, iterations=(Iteration(rank=0, name="1", parts=parts),)
    )


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0.01, 1))
def test_the_projection_is_the_studys_formula(comm: int, compute: int, efficiency: float) -> None:
    result = project(measured(comm, compute), 64, efficiency)
    r_comm, r_compute = comm / (comm + compute), compute / (comm + compute)
    assert result.speedup == pytest.approx((r_compute + r_comm) / (r_compute + r_comm / efficiency), rel=1e-6)
    assert result.iteration_s == pytest.approx((comm / efficiency + compute) * 1e-9, rel=1e-6)


def test_hidden_communication_comes_out_when_the_network_is_slow() -> None:
    assert project(measured(0, 1000, hidden=500), 64, 0.5).speedup == pytest.approx(1 / 1.5)
    assert project(measured(0, 1000, hidden=500), 64, 1.0).speedup == 1


@pytest.mark.parametrize(("target", "efficiency"), [(2, 1.0), (64, 0.0), (64, -1.0)])
def test_projection_refuses_what_cannot_be(target: int, efficiency: float) -> None:
    with pytest.raises(SpecError):
        project(measured(1, 1), target, efficiency)


def test_network_efficiency_is_below_one_across_slow_links() -> None:
    machine = predict(made("gpt-1.3b", "polaris", gpus=8)).machine
    assert 0 < network_efficiency(machine, 4, 512) < 0.3


def test_a_needed_bandwidth_has_an_interval_and_the_answers_of_other_stacks() -> None:
    setup = made(**ZERO3)
    answer = need.with_ranges(setup, need.bandwidth(setup, 0.2))
    assert answer.value is not None
    assert answer.interval is not None
    assert answer.interval.low is not None
    assert answer.interval.low < answer.value
    assert answer.interval.high is None or answer.value < answer.interval.high
    assert answer.over_stacks
    assert "fsdp-flash" in answer.over_stacks
    assert answer.over_stacks["fsdp-flash"] == pytest.approx(answer.value, rel=0.03)
    for name in answer.over_stacks:
        assert not name.startswith("engine")


def test_an_interval_has_no_upper_end_where_maybe_no_bandwidth_suffices() -> None:
    setup = made(**ZERO3)
    floor = need.bandwidth(setup, 0.9).floor
    answer = need.with_ranges(setup, need.bandwidth(setup, floor * 1.02))
    assert answer.value is not None
    assert answer.interval is not None
    assert answer.interval.high is None


def test_the_comm_fraction_lies_in_its_interval_and_is_wider_for_experts() -> None:
    widths = []
    for workload, more in (("llama-3-8b", {}), ("mixtral-8x7b", {"expert_parallel": 8})):
        setup = made(workload, "dgx-h100", gpus=64, data_parallel="zero1", stack="megatron-core", **more)
        shares, share = comm_fraction_range(setup), predict(setup).comm_fraction
        assert shares.low is not None
        assert shares.high is not None
        assert 0 <= shares.low <= share <= shares.high <= 1
        widths.append(shares.high - shares.low)
    assert widths[1] > widths[0] > 0


@pytest.mark.parametrize("name", ["engine-cuda", "megatron-core"])
def test_a_slower_host_launches_everything_more_slowly(name: str) -> None:
    stack = stack_named(name).with_values({"host_transfer_s": 1e-3, "host_sequence_collective_s": 2e-3})
    setup = made("gpt-2-medium", gpus=2, tensor_parallel=2, stack=stack)
    slower, faster = variants(setup)[0]
    for key in LAUNCH_TIMES:
        before = getattr(stack.host, key)
        ratios = [getattr(each.stack.host, key) / before for each in (slower, faster) if before]
        assert not before or (ratios[0] > 1 and ratios[0] * ratios[1] == pytest.approx(1)), key
    assert slower.stack.iteration.once_s > stack.iteration.once_s > faster.stack.iteration.once_s
    unknown = replace(setup, stack=stack_named(name))
    assert variants(unknown)[0][0].stack.host.transfer_s is None


def test_a_stated_batch_stays_when_the_number_of_gpus_is_swept() -> None:
    stated = made(gpus=64, data_parallel="zero1", stack="megatron-core", global_batch=512)
    points = sweep(stated, "gpus", ["64", "128", "4096"])
    batches = [p.prediction.setup.global_batch for p in points if p.prediction]
    assert batches == [512, 512]
    assert points[2].prediction is None  # 512 sequences do not divide over 4096 ranks
    open_ = made(gpus=64, data_parallel="zero1", stack="megatron-core")
    grown = [p.prediction.setup.global_batch for p in sweep(open_, "gpus", ["64", "128"]) if p.prediction]
    assert grown == [64, 128]


def test_a_projection_has_an_interval() -> None:
    parts = Parts(
        window_ns=100, compute_only_ns=60, overlapped_ns=10, exposed_comm_ns=30, exposed_memory_ns=0, idle_ns=0
    )
    measured = Breakdown(
        source=Source.IMPORTED, title="t", world_size=8, iterations=(Iteration(rank=0, name="1", parts=parts),)
    )
    one = project(measured, 64, 0.5, 0.2)
    assert one.low_s < one.iteration_s < one.high_s
    assert one.comm_fraction_low < one.comm_fraction < one.comm_fraction_high
    exact = project(measured, 64, 0.5, 0.0)
    assert exact.low_s == exact.iteration_s == exact.high_s
