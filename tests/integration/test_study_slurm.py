"""A study as jobs of a real Slurm with two nodes, both of them on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.slurm import NO_SLURM, slurm
from wirecost.study.slurm import queue_of
from wirecost.study.state import StudyState, read_state

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(NO_SLURM is not None, reason=str(NO_SLURM))]

STUDY = """\
name: queued
workloads: [{name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}]
networks: [{name: nodes, native: {}}]
plans: PLANS
hosts: HOSTS
ranks_per_host: 1
iterations: ITERATIONS
warmup: 1
min_time: 0 s
scaling: [{kind: strong, global_batch: 4}]
"""
ENDLESS = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _slurm() -> Iterator[None]:
    before = dict(os.environ)
    with slurm(nodes=2) as found:
        os.environ |= found
        yield
    os.environ.clear()
    os.environ |= before


def wirecost(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wirecost", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def write_study(folder: Path, iterations: int, *, plans: str = "[all-reduce, ddp]", hosts: str = "[2]") -> None:
    text = STUDY.replace("ITERATIONS", str(iterations)).replace("PLANS", plans).replace("HOSTS", hosts)
    (folder / "study.yaml").write_text(text)


def submit(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return wirecost("study", "run", "study.yaml", "--out", "out", "--launcher", "slurm", *more, folder=folder)


def job_of(folder: Path) -> str:
    (job,) = json.loads((folder / "out" / "slurm" / "jobs.json").read_text())
    return str(job["number"])


def state(folder: Path) -> StudyState:
    return read_state(folder / "out")


def states(folder: Path) -> list[str]:
    return [each.state.value for each in state(folder).experiments]


def runs(folder: Path, number: int) -> bool:
    """Returns whether an experiment runs and has trained."""
    each = state(folder).experiments[number]
    return each.state == "running" and bool(each.iterations)


def wait_for(condition: Callable[[], object], folder: Path, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(p.read_text(errors="replace")[-3000:] for p in (folder / "out").rglob("*.log"))
            raise AssertionError(f"nothing happened in {limit_s} s\n{logs}")
        time.sleep(0.2)


def control(*update: str) -> None:
    subprocess.run(["scontrol", *update], check=True, capture_output=True)


def test_plans_are_measured_in_an_allocation(tmp_path: Path) -> None:
    model = "{name: tiny, layers: 2, hidden: 64, heads: 4, vocab_size: 256, sequence_length: 64}"
    cluster = "{gpu: A100-PCIe-40GB, gpus_per_node: 1, nodes: 2, intra_node: pcie4, inter_node: tcp-1g}"
    plan = [sys.executable, "-m", "wirecost", "plan", model, "--cluster", cluster, "--gpus", "2", "-B", "4"]
    plan += [
        "--stack",
        "engine-cuda",
        "--precision",
        "fp32",
        "--tp",
        "1",
        "--measure",
        "1",
        "--launcher",
        "srun",
        "--format",
        "json",
    ]

    def measured(nodes: int) -> subprocess.CompletedProcess[str]:
        command = ["salloc", f"--nodes={nodes}", "--ntasks-per-node=1", *plan]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    few = measured(nodes=1)
    assert few.returncode == 2
    assert "2 nodes are needed, and the allocation has 1" in few.stderr
    done = measured(nodes=2)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["plans"]
    assert (row["status"], row["reason"]) == ("done", None)
    assert row["measured_s"] > 0
    assert len(list(tmp_path.glob("wirecost-runs/plan-tiny/plan-*/experiments/*/status.json"))) == 1


def processes(name: str, folder: Path) -> list[int]:
    """Returns the processes with a name that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if path.read_text().strip() == name and str(folder).encode() in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_study_over_two_nodes_runs_to_its_end(tmp_path: Path) -> None:
    write_study(tmp_path, 3, hosts="[1, 2]")
    assert submit(tmp_path, "--parallel", "2").returncode == 0
    jobs = json.loads((tmp_path / "out" / "slurm" / "jobs.json").read_text())
    assert [(job["shape"], job["experiments"]) for job in jobs] == [("1x1", 2), ("2x1", 2)]
    wait_for(lambda: states(tmp_path) == ["done"] * 4, tmp_path)
    report = wirecost("report", "out", "--format", "json", folder=tmp_path)
    rows = json.loads(report.stdout)["experiments"]
    assert [row["ranks"] for row in rows].count(2) == 2
    assert all(row["iteration_ms"] > 0 for row in rows)
    # Two jobs of a shape shared its experiments: each ran once.
    printed = "".join(path.read_text() for path in (tmp_path / "out" / "slurm").glob("*.log"))
    assert printed.count(": done in") == 4
    wait_for(lambda: not queue_of(tmp_path / "out"), tmp_path)
    assert "every experiment is finished" in submit(tmp_path).stdout
    assert wirecost("study", "check", "out", folder=tmp_path).returncode == 0


def test_a_drained_node_ends_nothing_and_a_cancelled_study_goes_on_when_the_node_is_back(tmp_path: Path) -> None:
    write_study(tmp_path, ENDLESS, plans="[ddp]")
    assert submit(tmp_path).returncode == 0
    wait_for(lambda: runs(tmp_path, 0), tmp_path)
    refused = submit(tmp_path)
    assert refused.returncode == 2
    assert "is writing here" in refused.stderr or "wait or run" in refused.stderr
    control("update", "NodeName=node2", "State=DRAIN", "Reason=test")
    try:
        before = state(tmp_path).experiments[0].iterations or 0
        wait_for(lambda: (state(tmp_path).experiments[0].iterations or 0) > before, tmp_path)
        assert wirecost("study", "cancel", "out", folder=tmp_path).stdout.count("cancelled job") == 1
        wait_for(lambda: not queue_of(tmp_path / "out") and not state(tmp_path).runs, tmp_path)
        assert states(tmp_path) == ["interrupted"]
        write_study(tmp_path, 3, plans="[ddp]")
        assert submit(tmp_path).returncode == 0
        shown = wirecost("study", "status", "out", folder=tmp_path)
        # squeue's own words say why nothing runs.
        assert "Jobs of Slurm" in shown.stdout
        assert "PENDING" in shown.stdout
        assert states(tmp_path) == ["waiting"]
    finally:
        control("update", "NodeName=node2", "State=RESUME")
    wait_for(lambda: states(tmp_path) == ["done"], tmp_path)
    wait_for(lambda: not queue_of(tmp_path / "out"), tmp_path)


def test_a_killed_rank_is_named_and_a_job_that_is_queued_again_loses_nothing(tmp_path: Path) -> None:
    write_study(tmp_path, ENDLESS)
    assert submit(tmp_path).returncode == 0
    wait_for(lambda: runs(tmp_path, 0), tmp_path)
    for pid in processes("rank-1", tmp_path):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: states(tmp_path)[0] == "failed", tmp_path)
    reason = state(tmp_path).experiments[0].reason or ""
    assert reason.startswith("rank 1 ")
    assert "Killed" in reason
    first = next((tmp_path / "out" / "experiments").glob("*all-reduce*/status.json")).stat()

    wait_for(lambda: runs(tmp_path, 1), tmp_path)
    control("requeue", job_of(tmp_path))
    wait_for(lambda: states(tmp_path)[1] in ("waiting", "interrupted"), tmp_path)
    wait_for(lambda: runs(tmp_path, 1), tmp_path)  # anew
    # Slurm queues a job again by itself if a node is lost.
    control("update", "NodeName=node2", "State=DOWN", "Reason=test")
    wait_for(lambda: states(tmp_path)[1] in ("waiting", "interrupted"), tmp_path)
    with suppress(subprocess.CalledProcessError):  # the node may have come back by itself
        control("update", "NodeName=node2", "State=RESUME")
    assert next((tmp_path / "out" / "experiments").glob("*all-reduce*/status.json")).stat() == first
    wirecost("study", "cancel", "out", folder=tmp_path)
    wait_for(lambda: not queue_of(tmp_path / "out"), tmp_path)
    wait_for(lambda: not processes("rank-0", tmp_path), tmp_path)
    assert states(tmp_path)[0] == "failed"


def test_a_job_at_its_time_limit_loses_nothing(tmp_path: Path) -> None:
    # Slurm may send the signal a minute early, which a busy machine takes to start an experiment. The limit is
    # therefore lowered when one runs. The signal comes with Slurm's next look at its jobs, within 30 s.
    write_study(tmp_path, ENDLESS)
    assert submit(tmp_path, "--time-limit", "30", "--sbatch", "signal=B:TERM@59").returncode == 0
    wait_for(lambda: "running" in states(tmp_path), tmp_path)
    asked = ["squeue", "--noheader", "--format", "%M", "--jobs", job_of(tmp_path)]
    minutes, _ = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip().split(":")
    control("update", f"JobId={job_of(tmp_path)}", f"TimeLimit={int(minutes) + 1}")
    wait_for(lambda: not queue_of(tmp_path / "out"), tmp_path)
    assert not state(tmp_path).runs
    assert states(tmp_path) == ["interrupted", "waiting"]
    assert "nothing runs here now" in wirecost("study", "status", "out", folder=tmp_path).stdout
