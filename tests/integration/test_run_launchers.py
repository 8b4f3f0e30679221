"""`wirecost run` with other launchers than this machine's; those of Slurm are in `test_run_slurm`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from support.studies import processes_about
from wirecost.cli import application
from wirecost.errors import SpecError
from wirecost.study import Store

JOB = Path(__file__).parents[1] / "support" / "jobs" / "ddp.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirecost", "run", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)


def on_machines(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command on two machines that are reached from another folder and without PATH. Both are this one."""
    return run(
        folder, "--launcher", "hosts", "--on", "one=127.0.0.1,two=127.0.0.1", "--interface", "lo",
        "--remote", "env -C / -u PATH HOST={host}", "--steps", "3", "--warmup", "1", "--profile", "1",
        "--format", "json", "--", *command,
    )  # fmt: skip


def test_a_launcher_runs_on_machines_that_the_user_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").symlink_to(JOB)
    # torchrun and the script are found as in the folder in which the command was given.
    done = on_machines(tmp_path, "torchrun", "--nproc-per-node", "1", "train.py")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["network"], row["ranks"], row["status"], row["iterations"]) == ("native", 2, "done", 3)
    (result,) = Store(tmp_path / "wirecost-runs" / "job").contents(every_byte=True).results
    assert (result.experiment.hosts, result.experiment.ranks_per_host) == (2, 1)
    assert result.breakdown is not None and result.breakdown.profile is not None
    assert result.breakdown.profile.reason is None
    assert not processes_about(tmp_path)


def test_a_command_that_fails_on_a_machine_is_named_with_its_last_words(tmp_path: Path) -> None:
    done = on_machines(tmp_path, "sh", "-c", "sleep $RANK; echo no data on $HOST; exit 3")
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["rows"]
    assert row["reason"] == "rank 0 ended with exit code 3; its last line of output: no data on one"


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_manifests_are_written_for_a_command(kind: str, tmp_path: Path) -> None:
    done = run(
        tmp_path, "--launcher", "kubernetes", "--container-image", "image", "--volume-claim", "results",
        "--manifest", kind, "--device", "cuda", "--hosts", "2x8", "--name", "mine", "--", "python", "train.py", "a b",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    path = tmp_path / "wirecost-runs" / "mine" / "kubernetes" / "2x8.yaml"
    documents = list(yaml.safe_load_all(path.read_text()))
    study = yaml.safe_load(documents[1]["data"]["study.yaml"])
    assert study["workloads"][0]["command"] == ["python", "train.py", "a b"]
    assert "nvidia.com/gpu: '8'" in path.read_text()
    assert [d["kind"] for d in documents][2:] == (
        ["JobSet"] if kind == "jobset" else ["TrainingRuntime", "TrainJob"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "gpu"], "--partition goes with --launcher slurm"),
        (["--launcher", "slurm", "--on", "a"], "--on goes with --launcher hosts"),
        (["--launcher", "hosts"], "--launcher hosts: needs --on, as --on node1,node2"),
        (["--launcher", "ssh"], "--launcher: unknown launcher 'ssh'"),
        (["--launcher", "srun"], "--launcher srun: needs an allocation of Slurm"),
        (["--launcher", "kubernetes"], "--launcher kubernetes: needs --container-image and --volume-claim"),
        (["--launcher", "hosts", "--on", "a,b", "--hosts", "3"], "hosts: 3, and --on names 2"),
        (["--interface", "eth0"], "--interface names the network between machines"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    result = CliRunner().invoke(application(), ["run", *options, "--", "true"])
    assert isinstance(result.exception, SpecError)
    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())
