"""A study as jobs of a real Slurm with two nodes, both of them on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.slurm import NO_SLURM, slurm

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(NO_SLURM is not None, reason=str(NO_SLURM))]

WIRECOST = [sys.executable, "-m", "wirecost"]
STUDY = """\
name: queued
workloads: [gpt-tiny]
networks: [{name: nodes, native: {}}]
plans: [all-reduce, ddp]
hosts: [1, 2]
ranks_per_host: 1
iterations: ITERATIONS
warmup: 1
min_time: 0 s
scaling: [{kind: strong, global_batch: 4}]
"""


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with slurm(nodes=2) as found:
        yield found


def run(arguments: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WIRECOST, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def submitted(environment: dict[str, str], folder: Path, iterations: int, *more: str) -> None:
    (folder / "study.yaml").write_text(STUDY.replace("ITERATIONS", str(iterations)))
    done = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm", *more], environment, folder)
    assert done.returncode == 0, done.stderr


def state(environment: dict[str, str], folder: Path) -> dict[str, Any]:
    done = run(["study", "status", "out", "--format", "json"], environment, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def states(environment: dict[str, str], folder: Path) -> list[str]:
    return [each["state"] for each in state(environment, folder)["experiments"]]


def wait_for(condition: Any, folder: Path, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(p.read_text(errors="replace")[-3000:] for p in (folder / "out").rglob("*.log"))
            raise AssertionError(f"nothing happened in {limit_s} s\n{logs}")
        time.sleep(0.5)


def test_a_study_over_two_nodes_runs_to_its_end(environment: dict[str, str], tmp_path: Path) -> None:
    submitted(environment, tmp_path, 3, "--parallel", "2")
    jobs = json.loads((tmp_path / "out" / "slurm" / "jobs.json").read_text())
    assert [(job["shape"], job["experiments"]) for job in jobs] == [("1x1", 2), ("2x1", 2)]
    wait_for(lambda: states(environment, tmp_path) == ["done"] * 4, tmp_path)
    report = run(["report", "out", "--format", "json"], environment, tmp_path)
    rows = json.loads(report.stdout)["experiments"]
    assert [row["ranks"] for row in rows].count(2) == 2
    assert all(row["iteration_ms"] > 0 for row in rows)
    # Two jobs of a shape shared its experiments: each ran once.
    printed = "".join(path.read_text() for path in (tmp_path / "out" / "slurm").glob("*.log"))
    assert printed.count(": done in") == 4
    again = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm"], environment, tmp_path)
    assert "every experiment is finished" in again.stdout
    assert run(["study", "check", "out"], environment, tmp_path).returncode == 0


def test_a_cancelled_study_goes_on_later(environment: dict[str, str], tmp_path: Path) -> None:
    submitted(environment, tmp_path, 400)
    wait_for(lambda: "running" in states(environment, tmp_path), tmp_path)
    refused = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm"], environment, tmp_path)
    assert refused.returncode == 2
    assert "is writing here" in refused.stderr or "wait or run" in refused.stderr
    shown = run(["study", "status", "out"], environment, tmp_path)
    assert "Jobs of Slurm" in shown.stdout
    cancelled = run(["study", "cancel", "out"], environment, tmp_path)
    assert cancelled.stdout.count("cancelled job") == 2
    wait_for(lambda: not state(environment, tmp_path)["runs"], tmp_path)
    assert "done" not in states(environment, tmp_path)
    wait_for(lambda: "PENDING" not in queue(environment) and "COMPLETING" not in queue(environment), tmp_path)
    submitted(environment, tmp_path, 3)
    wait_for(lambda: states(environment, tmp_path).count("done") == 4, tmp_path)


def queue(environment: dict[str, str]) -> str:
    return subprocess.run(
        ["squeue", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_a_killed_rank_is_named_and_a_lost_node_loses_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    text = STUDY.replace("ITERATIONS", "400").replace("hosts: [1, 2]", "hosts: [2]")
    (tmp_path / "study.yaml").write_text(text)
    done = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm"], environment, tmp_path)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: processes("rank-1", tmp_path), tmp_path)
    wait_for(lambda: state(environment, tmp_path)["experiments"][0]["iterations"], tmp_path)
    for pid in processes("rank-1", tmp_path):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: states(environment, tmp_path)[0] == "failed", tmp_path)
    first = state(environment, tmp_path)["experiments"][0]
    assert first["reason"].startswith("rank 1 ")
    assert "Killed" in first["reason"]

    wait_for(lambda: states(environment, tmp_path)[1] == "running", tmp_path)
    for what in ("DOWN", "RESUME"):
        command = ["scontrol", "update", "NodeName=node2", f"State={what}", "Reason=test"]
        # It may have come back by itself.
        subprocess.run(command, env=environment, check=what == "DOWN", stderr=subprocess.DEVNULL)
        time.sleep(1)
    # Slurm queues the job again. The finished experiment stays; the other one starts anew.
    wait_for(lambda: states(environment, tmp_path)[1] in ("waiting", "interrupted", "running"), tmp_path)
    assert states(environment, tmp_path)[0] == "failed"
    run(["study", "cancel", "out"], environment, tmp_path)
    wait_for(lambda: not queue(environment), tmp_path)
    wait_for(lambda: not processes("rank-0", tmp_path), tmp_path)
    assert states(environment, tmp_path)[0] == "failed"


def submit_two_nodes(environment: dict[str, str], folder: Path, iterations: int, *more: str) -> str:
    """Submits a study of two experiments over both nodes and returns the number of its job."""
    text = STUDY.replace("ITERATIONS", str(iterations)).replace("hosts: [1, 2]", "hosts: [2]")
    (folder / "study.yaml").write_text(text)
    done = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm", *more], environment, folder)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads((folder / "out" / "slurm" / "jobs.json").read_text())
    return str(job["number"])


def control(environment: dict[str, str], *command: str) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True)


def settled(environment: dict[str, str], folder: Path) -> None:
    """Cancels what a test left, and waits until both nodes are free."""
    run(["study", "cancel", "out"], environment, folder)
    wait_for(lambda: not queue(environment), folder)
    wait_for(lambda: not processes("rank-0", folder), folder)


def test_a_drained_node_ends_nothing_and_the_next_job_waits_for_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    submit_two_nodes(environment, tmp_path, 30)
    wait_for(lambda: states(environment, tmp_path)[0] == "running", tmp_path)
    control(environment, "scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=test")
    try:
        wait_for(lambda: states(environment, tmp_path) == ["done", "done"], tmp_path)
        wait_for(lambda: not queue(environment), tmp_path)
        text = (tmp_path / "study.yaml").read_text().replace("global_batch: 4", "global_batch: 8")
        (tmp_path / "study.yaml").write_text(text)
        again = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm"], environment, tmp_path)
        assert again.returncode == 0, again.stderr
        shown = run(["study", "status", "out"], environment, tmp_path)
        # squeue's own words say why nothing runs.
        assert "PENDING" in shown.stdout
        assert states(environment, tmp_path) == ["waiting", "waiting"]
    finally:
        control(environment, "scontrol", "update", "NodeName=node2", "State=RESUME")
    settled(environment, tmp_path)


def test_a_job_that_is_queued_again_starts_its_experiment_anew_and_keeps_the_finished_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    job = submit_two_nodes(environment, tmp_path, 40)
    wait_for(lambda: states(environment, tmp_path) == ["done", "running"], tmp_path)
    first = next((tmp_path / "out" / "experiments").glob("*all-reduce*/status.json")).stat()
    control(environment, "scontrol", "requeue", job)
    wait_for(lambda: states(environment, tmp_path)[1] != "running", tmp_path)
    assert states(environment, tmp_path)[1] in ("waiting", "interrupted")
    control(
        environment, "scontrol", "update", f"JobId={job}", "StartTime=now"
    )  # without Slurm's pause of a minute
    wait_for(lambda: states(environment, tmp_path) == ["done", "done"], tmp_path)
    assert next((tmp_path / "out" / "experiments").glob("*all-reduce*/status.json")).stat() == first
    settled(environment, tmp_path)


def test_a_job_at_its_time_limit_loses_nothing_and_goes_on_later(
    environment: dict[str, str], tmp_path: Path
) -> None:
    # A minute is Slurm's shortest limit. The job stops 30 s before it, or when the signal comes.
    submit_two_nodes(environment, tmp_path, 4000, "--time-limit", "1", "--sbatch", "signal=B:TERM@50")
    wait_for(lambda: "running" in states(environment, tmp_path), tmp_path)
    wait_for(lambda: not queue(environment), tmp_path)
    assert not state(environment, tmp_path)["runs"]
    assert set(states(environment, tmp_path)) <= {"waiting", "interrupted"}
    shown = run(["study", "status", "out"], environment, tmp_path)
    assert "nothing runs here now" in shown.stdout
    (tmp_path / "study.yaml").write_text((tmp_path / "study.yaml").read_text().replace("4000", "3"))
    again = run(["study", "run", "study.yaml", "--out", "out", "--launcher", "slurm"], environment, tmp_path)
    assert again.returncode == 0, again.stderr
    wait_for(lambda: states(environment, tmp_path) == ["done", "done"], tmp_path)


def test_plans_are_measured_in_an_allocation(environment: dict[str, str], tmp_path: Path) -> None:
    model = "{name: tiny, layers: 2, hidden: 64, heads: 4, vocab_size: 256, sequence_length: 64}"
    cluster = "{gpu: A100-PCIe-40GB, gpus_per_node: 1, nodes: 2, intra_node: pcie4, inter_node: tcp-1g}"
    plan = [*WIRECOST, "plan", model, "--cluster", cluster, "--gpus", "2", "-B", "4", "--stack", "engine-cuda"]
    plan += ["--precision", "fp32", "--tp", "1", "--measure", "1", "--launcher", "srun", "--format", "json"]

    def measured(nodes: int) -> subprocess.CompletedProcess[str]:
        command = ["salloc", f"--nodes={nodes}", "--ntasks-per-node=1", *plan]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

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
