"""A study on machines that the user names: network namespaces of this one, which `ip netns exec` reaches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.studies import processes_about
from wirecost.errors import SpecError
from wirecost.launch.machines import Machines
from wirecost.study.result import read_result

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]

STUDY = """\
name: named
workloads: [{name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}]
networks: [{name: real, native: {interface: wire0}}]
plans: [all-reduce]
hosts: [2]
scaling: [{kind: weak, micro_batch: 2}]
iterations: ITERATIONS
warmup: 1
timeout: TIMEOUT
benchmark: false
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[str, str]]:
    """Yields the names of two namespaces that a link connects."""
    names = [f"wc{os.getpid()}{letter}" for letter in "ab"]
    with ExitStack() as undo:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            undo.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        pair = [
            "ip",
            "link",
            "add",
            "wire0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "wire0",
            "netns",
            names[1],
        ]
        subprocess.run(pair, check=True)
        for number, name in enumerate(names, 1):
            subprocess.run(["ip", "-n", name, "addr", "add", f"192.0.2.{number}/24", "dev", "wire0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "wire0", "up"], check=True)
        yield names[0], names[1]


def start(
    machines: tuple[str, str], folder: Path, iterations: int, timeout: str = "120 s"
) -> subprocess.Popen[str]:
    study = folder / "study.yaml"
    study.write_text(STUDY.replace("ITERATIONS", str(iterations)).replace("TIMEOUT", timeout))
    on = ",".join(f"{name}=192.0.2.{number}" for number, name in enumerate(machines, 1))
    command = [
        sys.executable, "-m", "wirecost", "study", "run", str(study), "--out", str(folder / "out"), "--resume",
        "--launcher", "hosts", "--on", on, "--remote", "ip netns exec {host}",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(folder: Path) -> dict[str, object]:
    (path,) = (folder / "out" / "experiments").glob("*/status.json")
    return json.loads(path.read_bytes())


def wait_for_iterations(folder: Path, process: subprocess.Popen[str]) -> bool:
    """Waits until an iteration was trained, and returns whether one was before the run ended."""
    while process.poll() is None:
        if any(p.stat().st_size for p in (folder / "out").glob("experiments/.partial-*/samples/rank-1.jsonl")):
            return True
        time.sleep(0.1)
    return False


def test_a_rank_that_is_killed_on_a_named_machine_is_named(machines: tuple[str, str], tmp_path: Path) -> None:
    with start(machines, tmp_path, 100_000) as process:
        assert wait_for_iterations(tmp_path, process)
        (pid,) = (
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/comm")
            if _is_rank(path, "rank-1", tmp_path)
        )
        os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert outcome(tmp_path)["status"] == "failed"
    assert str(outcome(tmp_path)["reason"]).startswith("rank 1 was killed by SIGKILL")
    assert not processes_about(tmp_path)
    (logs,) = (tmp_path / "out" / "experiments").glob("*/logs")
    assert {p.name for p in logs.iterdir()} >= {"host-0.log", "host-1.log", "rank-0.log", "rank-1.log"}


def test_a_link_that_goes_down_in_a_collective_ends_the_experiment_at_its_timeout(
    machines: tuple[str, str], tmp_path: Path
) -> None:
    for timeout_s in (12, 30, 60):  # a busy machine needs longer until it trains
        folder = tmp_path / str(timeout_s)
        folder.mkdir()
        with start(machines, folder, 100_000, timeout=f"{timeout_s} s") as process:
            trains = wait_for_iterations(folder, process)
            subprocess.run(["ip", "-n", machines[1], "link", "set", "wire0", "down"], check=True)
            try:
                _, errors = process.communicate(timeout=120)
            finally:
                subprocess.run(["ip", "-n", machines[1], "link", "set", "wire0", "up"], check=True)
        assert process.returncode == 1, errors
        assert outcome(folder)["status"] == "failed"
        reason = str(outcome(folder)["reason"])
        assert f"not finished after {timeout_s} s" in reason or "rank" in reason
        assert not processes_about(folder)
        if trains:
            return
    pytest.fail("no iteration was trained")


def test_a_machine_that_cannot_be_reached_is_named(machines: tuple[str, str], tmp_path: Path) -> None:
    with start((machines[0], "wc-none"), tmp_path, 2) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert str(outcome(tmp_path)["reason"]).startswith("host wc-none: ended with exit code")
    assert not processes_about(tmp_path)


def _is_rank(path: Path, name: str, folder: Path) -> bool:
    try:
        return path.read_text().strip() == name and str(folder).encode() in (path.parent / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("on", "remote", "message"),
    [
        ("a,,b", None, "--on: '' is no host"),
        ("a,a", None, "a host is named twice"),
        ("-oProxyCommand=x", None, "is no host"),
        ("a b", None, "is no host"),
        ("a,b", "ssh", "doesn't say where the host stands"),
        ("a,b", "ssh '{host}", "can't be split"),
    ],
)
def test_machines_that_are_none_are_refused(on: str, remote: str | None, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Machines.parse(on, remote)


def test_machines_survive_json_and_are_reached_by_the_command() -> None:
    machines = Machines.parse("node1=192.0.2.1, node2", "ssh -p 2222 {host}")
    assert machines.hosts == (("node1", "192.0.2.1"), ("node2", "node2"))
    assert machines.command(1)[:4] == ["ssh", "-p", "2222", "node2"]
    assert Machines.from_json(machines.to_json().encode()) == machines


def test_plans_are_measured_on_named_machines(machines: tuple[str, str], tmp_path: Path) -> None:
    on = ",".join(f"{name}=192.0.2.{number}" for number, name in enumerate(machines, 1))
    run = subprocess.run(
        [
            sys.executable, "-m", "wirecost", "plan",
            "{layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}",
            "--cluster", "{gpu: A10, gpus_per_node: 1, nodes: 2, intra_node: pcie4, inter_node: tcp-1g}",
            "--gpus", "2", "-B", "4", "--tp", "1", "--pp", "1", "--stack", "engine-cuda", "--precision", "fp32",
            "--measure", "1", "--launcher", "hosts", "--on", on, "--remote", "ip netns exec {host}",
            "--interface", "wire0", "--out", str(tmp_path / "out"), "--format", "json",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (plan,) = json.loads(run.stdout)["plans"]
    assert plan["status"] == "done", run.stderr
    (store,) = (tmp_path / "out").iterdir()
    (experiment,) = (store / "experiments").glob("[!.]*")
    stored = read_result(experiment).experiment
    assert stored.network.native is not None
    assert (stored.hosts, stored.ranks_per_host, stored.network.native.interface) == (2, 1, "wire0")
