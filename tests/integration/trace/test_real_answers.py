"""The answer on real traces: the cause that is known of the job, and no rank blamed that isn't at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.trace import TraceSet, read

pytestmark = pytest.mark.needs_shared

H200 = "h200-gpt-2-medium"


def answer(shared: Path, name: str, **options: object) -> TraceSet:
    return read(shared / "traces" / name, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "code", "ranks"),
    [
        (f"{H200}/ddp-mb16-b25-nvlink", "nothing", []),
        (f"{H200}/ddp-mb16-b25-emulated-20g", "exposed_transfer", []),
        (f"{H200}/ddp-mb16-b25-nvlink-slow", "late_work", [1]),
        (f"{H200}/h200-one-gpu-plain", "nothing", []),
        (f"{H200}/h200-one-gpu-accumulate", "nothing", []),
        ("dlrm-8-ranks", "idle_host", []),
        ("ddp-2-ranks-nccl-args.json.gz", "idle_host", []),
        ("rccl-mi300-rank0.json.gz", "exposed_unsplit", []),
        ("gloo-cpu-only-rank34.json.gz", "exposed_unsplit", []),
    ],
)
def test_the_cause_is_the_one_that_is_known(shared: Path, name: str, code: str, ranks: list[int]) -> None:
    s = answer(shared, name)
    assert (s.answer.code, s.answer.ranks) == (code, ranks)


def test_the_slow_rank_runs_25_more_products(shared: Path) -> None:
    """Rank 1 does 25 extra products of 8192 x 8192 in each forward pass; the job measured 281.6 ms with them and
    240.2 ms without."""
    s = answer(shared, f"{H200}/ddp-mb16-b25-nvlink-slow")
    assert "25 more nvjet_sm90" in s.answer.cause
    assert s.answer.iteration_ns == pytest.approx(281.6e6, rel=0.03)
    assert s.answer.gain_ns == pytest.approx((281.6 - 240.2) * 1e6, rel=0.15)


def test_the_gain_of_a_network_without_cost_is_an_upper_bound(shared: Path) -> None:
    """The same job takes 709 ms at 20 Gb/s and 240 ms over NVLink."""
    s = answer(shared, f"{H200}/ddp-mb16-b25-emulated-20g")
    assert s.answer.gain_ns == pytest.approx((709.3 - 240.2) * 1e6, rel=0.03)
    assert "all_reduce" in s.answer.cause
    assert "mostly because it takes longer than the compute that could hide it" in s.answer.cause


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("08-oneccl-xpu", "exposed_unsplit", "all_reduce"),
        ("14-pipeline-p2p", "bubble", "neighbours' results 29%"),
        ("16-nsys-op-ranges-as-iterations", "exposed_unsplit", "of the recorded window"),
        ("24-clock-offset-between-nodes", "exposed_transfer", "33% of an iteration"),
        ("26-whole-window-called-iteration", "idle_unseen", "of the recorded window"),
        ("31-mixed-silent", "exposed_unsplit", "50% of an iteration"),
    ],
)
def test_small_cases_get_the_cause_that_they_show(shared: Path, name: str, code: str, says: str) -> None:
    s = read(shared / "cases" / "trace" / name)
    assert (s.answer.code, s.answer.ranks) == (code, [])
    assert says in s.answer.cause


def test_a_recorded_window_is_never_called_an_iteration(shared: Path) -> None:
    s = read(shared / "cases" / "trace" / "26-whole-window-called-iteration")
    assert s.answer.lines[0][0] == "Recorded"
    assert "the recorded window is 19.10 ms" in s.answer.iteration
    assert not [line for line in s.summary if "per iteration" in line or "An iteration" in line]


def test_clock_offsets_are_said(shared: Path) -> None:
    s = read(shared / "cases" / "trace" / "24-clock-offset-between-nodes")
    (offsets,) = [d for d in s.notable_diagnostics if d.code == "clock_offsets"]
    assert offsets.severity == "info" and "+300.0 us" in offsets.message
