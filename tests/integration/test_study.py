"""Whole studies: real processes, real namespaces, real training."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from support.studies import (
    done,
    losses,
    network_namespaces,
    only,
    wait_until_gone,
    write_study,
)
from wirecost.breakdown import MemoryKind, Phase
from wirecost.report import read_report
from wirecost.report.figures import charts_of, to_svg
from wirecost.spec import Experiment, Study, load, plan_name
from wirecost.study import run_study
from wirecost.study.events import EventKind, read_events
from wirecost.study.over_time import read_over_time

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def test_one_study_end_to_end(tmp_path: Path) -> None:
    before = network_namespaces()
    changes = (
        ("[all-reduce]", "[all-reduce, ddp, all-reduce-bf16]"),
        ("hidden: 64", "hidden: 256"),
        (
            "iterations: 3",
            "iterations: 3\nperiodic: {checkpoint_every: 2, validate_every: 3, validation_batches: 1}",
        ),
    )
    study = load(
        Study, write_study(tmp_path, *changes, ("50 Mb/s", "200 Mb/s"), ("benchmark: false", "benchmark: true"))
    )
    results = {plan_name(r.experiment): r for r in run_study(study, tmp_path / "out")}
    wait_until_gone(tmp_path, before)

    # One network in one shape: one benchmark, whatever is trained over it.
    (kept,) = (tmp_path / "out" / "networks").iterdir()
    assert sorted(p.name for p in kept.iterdir()) == ["bench.json", "manifest.json"]
    rows = json.loads((kept / "bench.json").read_text())["rows"]
    assert len(rows) >= 6
    assert all(row["wrong"] == 0 for row in rows)
    assert not any("network_not_benchmarked" in {w.code for w in done(r).diagnostics} for r in results.values())

    flat = done(results["all-reduce"])
    folder = results["all-reduce"].directory
    assert sorted(p.name for p in folder.iterdir()) == [
        "breakdown.json", "counters.jsonl", "environment.json", "events", "experiment.yaml", "link.json", "logs",
        "machine.json", "manifest.json", "memory", "samples", "status.json", "tcp.json",
    ]  # fmt: skip
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["torch"]
    assert environment["cores"] >= 1
    assert "PATH" not in json.dumps(environment)
    for rank in (0, 1):
        lines = (folder / "samples" / f"rank-{rank}.jsonl").read_text().splitlines()
        assert [json.loads(line)["warmup"] for line in lines] == [True, False, False, False]

    # Interpreter, libraries, and parameters, gradients and Adam's moments.
    assert [(p.rank, p.kind) for p in flat.peak_memory] == [(r, MemoryKind.RESIDENT_SET) for r in (0, 1)]
    largest = flat.largest_peak()
    assert largest is not None
    assert 50 << 20 < largest.peak_bytes < 4 << 30

    # 512 x h tied tokens, 32 x h positions, one layer of 12 h^2 + 13 h, a last norm of 2 h: in FP32.
    parameters = (512 + 32) * 256 + 12 * 256**2 + 13 * 256 + 2 * 256
    for call in flat.collectives:
        assert (call.op, call.group_size, call.count) == ("all_reduce", 2, 3)
        assert call.bytes == 3 * 4 * parameters
        assert call.wait_ns is not None
        assert call.transfer_ns is not None
        assert call.wait_ns + call.transfer_ns == call.duration_ns
    for i in flat.iterations:
        assert sum(i.phases.values()) == i.parts.window_ns
        assert i.parts.exposed_comm_ns <= i.phases[Phase.GRAD_SYNC]
        assert i.parts.overlapped_ns == 0
    # The whole buffer can't cross a capped link faster than the cap, but for what fits the shaper's bucket.
    assert flat.network is not None
    assert flat.network.emulated
    assert flat.network.measured_rate_bps is not None
    assert flat.network.measured_rate_bps < 1.02 * 200e6

    # On a ring of two, each host sends 2 (n-1)/n = 1 times the buffer in every iteration; headers add to it, and
    # so does the ranks' finding each other.
    over_time = read_over_time(folder)
    assert over_time is not None
    assert [(s.kind, s.device) for s in over_time.series] == [("ethernet", "host0"), ("ethernet", "host1")]
    for series in over_time.series:
        for moved in (series.rx_bytes[-1], series.tx_bytes[-1]):
            assert 4 * 4 * parameters < moved < 1.03 * 4 * 4 * parameters
        assert series.t_ns[0] < over_time.iterations[0].start_ns
        assert series.t_ns[-1] > over_time.iterations[-1].end_ns
    assert [i.warmup for i in over_time.iterations] == [True, False, False, False]
    assert flat.network.mean_use_bps
    assert flat.network.peak_use_bps
    assert flat.network.tcp_retransmitted is not None
    assert flat.network.tcp_retransmitted < 0.1

    assert_interrupted(tmp_path / "out", folder)

    ddp = done(results["ddp"])
    assert sum(c.bytes or 0 for c in ddp.collectives) == sum(c.bytes or 0 for c in flat.collectives)
    assert losses(ddp) == pytest.approx(losses(flat), rel=1e-5)
    half = done(results["all-reduce-bf16"])
    assert sum(c.bytes or 0 for c in half.collectives) * 2 == sum(c.bytes or 0 for c in flat.collectives)
    assert losses(half) == pytest.approx(losses(flat), rel=0.02)


def assert_interrupted(out: Path, folder: Path) -> None:
    """By checkpoints after iterations 1 and 3 and a validation after iteration 2, all of them between iterations,
    and the report draws them. (The folder that is compared above holds no checkpoint any more.)"""
    for rank, events in read_events(folder).items():
        assert [(str(e.kind), e.after_iteration) for e in events] == [
            ("checkpoint", 1), ("validation", 2), ("checkpoint", 3),
        ]  # fmt: skip
        samples = [
            json.loads(line) for line in (folder / "samples" / f"rank-{rank}.jsonl").read_text().splitlines()
        ]
        for event in events:
            assert event.start_ns >= samples[event.after_iteration]["end_ns"]
            assert all(event.end_ns <= s["start_ns"] for s in samples[event.after_iteration + 1 :])
            assert (event.bytes is not None) == (event.kind is EventKind.CHECKPOINT)
            assert (event.loss is not None) == (event.kind is EventKind.VALIDATION)
        assert not any(s["phases"].keys() & {"checkpoint", "validation"} for s in samples)
    assert list(read_events(folder)) == [0, 1]

    # Each in both hosts' panels of all three plans. Pauses that are close share a label.
    figure = to_svg(charts_of(read_report(out))["network_over_time"])
    labels = re.findall(">([a-z, ]+)</text>", figure)
    assert sum("validation" in label for label in labels) == 6
    assert 6 <= sum("checkpoint" in label for label in labels) <= 2 * 6


def test_a_profiled_window_on_cpus_leaves_traces_and_says_that_they_have_no_device_time_line(
    tmp_path: Path,
) -> None:
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\nprofile_iterations: 2")))
    result = only(run_study(study, tmp_path / "out"))
    breakdown = done(result)
    assert len(breakdown.iterations) == 2 * 3  # what was profiled isn't among them
    window = breakdown.profile
    assert window is not None
    assert (window.source, window.asked_iterations, window.iterations) == ("torch.profiler", 2, ())
    assert window.reason == "unknown: no device time line in the trace (ranks 0, 1)"
    assert window.overlap() is None
    for rank in (0, 1):
        with gzip.open(result.directory / "traces" / f"rank-{rank}.json.gz") as file:
            trace = json.load(file)
        names = {str(e.get("name")) for e in trace["traceEvents"]}
        # The first one is what sets the profiler up.
        assert {n for n in names if n.startswith("ProfilerStep#")} == {"ProfilerStep#1", "ProfilerStep#2"}
        assert any(n.startswith("gloo:all_reduce") for n in names)
        assert trace["distributedInfo"]["rank"] == rank


def test_the_loss_does_not_depend_on_the_number_of_ranks_and_falls(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("[2]", "[1, 4]"), ("iterations: 3", "iterations: 12")))
    by_ranks = {r.experiment.ranks: losses(done(r)) for r in run_study(study, tmp_path / "out")}
    assert by_ranks[4] == pytest.approx(by_ranks[1], rel=1e-4)
    assert by_ranks[1][-1] < by_ranks[1][0] - 0.1


def test_iterations_that_are_quick_are_followed_by_more(tmp_path: Path) -> None:
    changes = ("iterations: 3", "iterations: 3\nmin_time: 1 s\nprofile_iterations: 1"), ("[2]", "[1, 2]")
    results = run_study(load(Study, write_study(tmp_path, *changes)), tmp_path / "out")
    assert len(results) == 2
    for result in results:
        ranks = result.experiment.ranks
        by_rank = [[i for i in done(result).iterations if i.rank == rank] for rank in range(ranks)]
        counts = {len(mine) for mine in by_rank}
        assert len(counts) == 1
        # On a busy machine three may take that long.
        if sum(i.parts.window_ns for i in by_rank[0][:3]) < 1e9:
            assert counts.pop() > 3
        for mine in by_rank:
            assert [int(i.name) for i in mine] == list(range(1, 1 + len(mine)))
        assert sum(i.parts.window_ns for i in by_rank[0]) >= 1e9


def test_accumulated_micro_batches_are_one_batch(tmp_path: Path) -> None:
    whole = load(Study, write_study(tmp_path))
    parts = load(
        Study,
        write_study(tmp_path, ("[all-reduce]", "[all-reduce, ddp]"), ("batch: 4", "batch: 4, micro_batch: 1")),
    )
    reference = done(only(run_study(whole, tmp_path / "a")))
    expected, whole_bytes = losses(reference), {c.bytes for c in reference.collectives}
    results = run_study(parts, tmp_path / "b")
    assert len(results) == 2
    for result in results:
        assert isinstance(result.experiment, Experiment)
        assert result.experiment.accumulation == 2
        breakdown = done(result)
        assert losses(breakdown) == pytest.approx(expected, rel=1e-5)
        # Only the last micro-batch synchronizes: no more bytes than without accumulation.
        assert {c.bytes for c in breakdown.collectives} == whole_bytes
