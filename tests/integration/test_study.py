"""Whole studies: real processes, real namespaces, real training."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from pathlib import Path

import pytest

from support.studies import faulty_worker, network_namespaces, processes_about, start, wait_until_gone, write_study
from wirecost.breakdown import Breakdown, MemoryKind, Phase
from wirecost.report import read_report
from wirecost.report.figures import charts_of, to_svg
from wirecost.spec import Study, load
from wirecost.study import Result, Status, Store, run_study
from wirecost.study.events import EventKind, read_events
from wirecost.study.over_time import read_over_time

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def only(results: list[Result]) -> Result:
    (result,) = results
    return result


def done(result: Result) -> Breakdown:
    assert result.outcome.status is Status.DONE, result.outcome
    assert result.breakdown is not None
    return result.breakdown


def losses(breakdown: Breakdown) -> list[float]:
    """The global batch's mean loss by iteration: ranks have equal shares."""
    return [
        sum(i.loss for i in group if i.loss is not None) / len(group)
        for group in breakdown.by_iteration().values()
    ]


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
    results = {r.experiment.plan.name: r for r in run_study(study, tmp_path / "out")}
    wait_until_gone(tmp_path, before)

    # One network in one shape: one benchmark, whatever is trained over it.
    (kept,) = (tmp_path / "out" / "networks").iterdir()
    assert [p.name for p in kept.iterdir()] == ["bench.json"]
    rows = json.loads((kept / "bench.json").read_text())["rows"]
    assert len(rows) >= 6
    assert all(row["wrong"] == 0 for row in rows)
    assert not any("network_not_benchmarked" in {w.code for w in done(r).warnings} for r in results.values())

    flat = done(results["all-reduce"])
    folder = results["all-reduce"].directory
    assert sorted(p.name for p in folder.iterdir()) == [
        "breakdown.json", "counters.jsonl", "environment.json", "events", "experiment.yaml", "link.json", "logs",
        "machine.json", "memory", "samples", "status.json",
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

    # Each in both hosts' panels of all three plans.
    figure = to_svg(charts_of(read_report(out))["network_over_time"])
    assert (figure.count(">checkpoint</text>"), figure.count(">validation</text>")) == (2 * 6, 6)


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


def test_accumulated_micro_batches_are_one_batch(tmp_path: Path) -> None:
    whole = load(Study, write_study(tmp_path))
    parts = load(
        Study,
        write_study(tmp_path, ("[all-reduce]", "[all-reduce, ddp]"), ("batch: 4", "batch: 4, micro_batch: 1")),
    )
    reference = done(only(run_study(whole, tmp_path / "a")))
    expected, whole_bytes = losses(reference), {c.bytes for c in reference.collectives}
    for result in run_study(parts, tmp_path / "b"):
        assert result.experiment.accumulation == 2
        breakdown = done(result)
        assert losses(breakdown) == pytest.approx(expected, rel=1e-5)
        # Only the last micro-batch synchronizes: no more bytes than without accumulation.
        assert {c.bytes for c in breakdown.collectives} == whole_bytes


def test_killed_at_any_moment_it_resumes_without_losing_or_repeating(tmp_path: Path) -> None:
    before = network_namespaces()
    study = write_study(tmp_path, ("hosts: [2]", "hosts: [1, 2]"), ("[all-reduce]", "[all-reduce, ddp]"))
    out = tmp_path / "out"
    for number in range(5):
        run = start(study, out, "--resume")
        # Each time later: while experiments start, train, finish, and in between.
        time.sleep(1.5 + 2.2 * number)
        finished = {p.parent.name: p.stat().st_ino for p in out.glob("experiments/[!.]*/status.json")}
        ended = run.poll() is not None
        run.send_signal(signal.SIGKILL)
        run.communicate()
        for name, inode in finished.items():
            assert (out / "experiments" / name / "status.json").stat().st_ino == inode
        if ended:
            break
    wait_until_gone(out, before)
    finished = {p.parent.name: p.stat().st_ino for p in out.glob("experiments/[!.]*/status.json")}
    results = run_study(load(Study, study), out, resume=True)
    assert len(results) == 4
    assert {r.outcome.status for r in results} == {Status.DONE}
    for name, inode in finished.items():
        assert (out / "experiments" / name / "status.json").stat().st_ino == inode
    assert not list(out.glob("experiments/.partial-*"))


def test_a_budget_starts_nothing_that_does_not_fit(tmp_path: Path) -> None:
    study, out = write_study(tmp_path), tmp_path / "out"
    run = start(study, out, "--budget", "1 s")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "1 of 1 experiments did not fit into 1 s: go on with --resume" in err
    assert not list(out.glob("experiments/*"))
    run = start(study, out, "--budget", "soon")
    _, err = run.communicate(timeout=60)
    assert (run.returncode, err.count("\n")) == (2, 1)
    assert "--budget" in err


def test_ctrl_c_cleans_up(tmp_path: Path) -> None:
    before = network_namespaces()
    out = tmp_path / "out"
    run = start(write_study(tmp_path, ("iterations: 3", "iterations: 100000")), out)
    wait_for_samples(out)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert err.splitlines()[-1] == "wirecost: interrupted"
    assert "Traceback" not in err
    assert processes_about(out) == []
    wait_until_gone(out, before)


def wait_for_samples(out: Path) -> Path:
    deadline = time.monotonic() + 120
    while True:
        for samples in out.glob("experiments/.partial-*/samples/rank-0.jsonl"):
            if samples.stat().st_size:
                return samples.parents[1]
        assert time.monotonic() < deadline, "no iteration was trained"
        time.sleep(0.05)


def test_a_rank_that_raises_fails_the_experiment_with_its_traceback_and_the_study_goes_on(tmp_path: Path) -> None:
    body = """\
if os.environ["RANK"] == "1" and "ddp" not in sys.argv[1]:
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        if iteration == 2:
            raise LookupError("the moon is in the wrong phase")
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("[all-reduce]", "[all-reduce, ddp]")))
    first, second = run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body))
    assert first.outcome.status is Status.FAILED
    assert first.outcome.rank == 1
    assert first.outcome.reason == "rank 1: LookupError: the moon is in the wrong phase"
    assert "in share" in (first.outcome.traceback or "")
    assert any("moon" in line for line in first.outcome.log_tail)
    assert second.outcome.status is Status.DONE


def test_a_rank_that_is_killed_fails_the_experiment_within_30_s(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = start(write_study(tmp_path, ("iterations: 3", "iterations: 100000")), out)
    directory = wait_for_samples(out)
    victim = next(
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and b"RANK=1\0" in read(f"/proc/{pid}/environ") and str(directory) in cmdline(pid)
    )
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    run.communicate(timeout=30)
    assert time.monotonic() - killed < 30
    assert run.returncode == 1
    outcome = only(Store(out).results()).outcome
    assert outcome.status is Status.FAILED
    assert (outcome.reason or "").startswith("rank 1 was killed by SIGKILL")


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def cmdline(pid: str) -> str:
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()


def test_out_of_memory_is_an_outcome(tmp_path: Path) -> None:
    body = """\
import resource, torch
if os.environ["RANK"] == "0":
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
"""
    text = ("hidden: 64, heads: 2", "hidden: 8192, heads: 2")
    study = load(Study, write_study(tmp_path, text))
    result = only(run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body)))
    assert result.outcome.status is Status.OOM, result.outcome
    assert result.outcome.rank == 0
    memory = result.outcome.memory
    assert memory is not None
    assert memory.kind is MemoryKind.RESIDENT_SET
    assert memory.peak_bytes
    assert memory.asked_bytes
    assert memory.asked_bytes >= 8192 * 512 * 4
    assert result.outcome.reason is not None
    assert result.outcome.reason.endswith(memory.words)


def test_a_rank_that_runs_out_of_memory_in_training_ends_the_other_and_says_how_much_it_asked_for(
    tmp_path: Path,
) -> None:
    body = """\
import torch
if os.environ["RANK"] == "1":
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        if iteration == 2:
            torch.empty(1 << 50, dtype=torch.uint8)
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\ntimeout: 300 s")))
    began = time.monotonic()
    result = only(run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body)))
    assert time.monotonic() - began < 200  # the other was not left to its timeout
    assert (result.outcome.status, result.outcome.rank) == (Status.OOM, 1)
    assert result.outcome.memory is not None
    assert result.outcome.memory.asked_bytes == 1 << 50
    assert processes_about(tmp_path / "out") == []


def test_a_diverging_loss_stops_the_run_and_names_the_iteration(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\noptimizer: {learning_rate: 1.0e+30}")))
    result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.FAILED
    assert "NonFiniteLossError: the loss is nan at iteration 1" in (result.outcome.reason or "")


def test_a_rank_that_hangs_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    body = """\
import time
if os.environ["RANK"] == "1":
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        while iteration == 1:
            time.sleep(0.05)
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""
    study = load(Study, write_study(tmp_path, ("warmup: 1", "warmup: 1\ntimeout: 20 s")))
    result = only(run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body)))
    assert result.outcome.status is Status.FAILED
    assert "not finished after 20 s; rank 0 had completed 1 of 4 iterations" in (result.outcome.reason or "")
    log = (result.directory / "logs" / "rank-1.log").read_text()
    assert "in share" in log


def test_more_than_the_machine_reaches_is_skipped_with_what_it_does(tmp_path: Path) -> None:
    study = load(Study, write_study(tmp_path, ("50 Mb/s", "100 Gb/s")))
    result = only(run_study(study, tmp_path / "out"))
    assert result.outcome.status is Status.SKIPPED
    assert "can't be shaped to 100 Gb/s" in (result.outcome.reason or "")


def test_two_runs_in_one_place(tmp_path: Path) -> None:
    study, out = write_study(tmp_path, ("iterations: 3", "iterations: 100000")), tmp_path / "out"
    first = start(study, out)
    wait_for_samples(out)
    second = start(study, out, "--resume")
    _, err = second.communicate(timeout=60)
    assert second.returncode == 2
    assert err == f"wirecost: {out}: another run is writing here; wait for it or use --out\n"
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    third = start(study, out)
    _, err = third.communicate(timeout=60)
    assert third.returncode == 2
    assert "holds an earlier run; go on with --resume" in err
