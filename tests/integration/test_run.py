"""`wirecost run`: real trainers and misbehaving jobs on two emulated hosts."""

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.processes import of_this_worker
from wirecost import load, validate
from wirecost.cli import application
from wirecost.errors import SpecError
from wirecost.spec import JobExperiment, Study
from wirecost.study import Result, Status, Store, run_study
from wirecost.study.store import StoreError

pytestmark = pytest.mark.needs_root
JOBS = Path(__file__).parents[1] / "support" / "jobs"
NETWORK = {"name": "quick", "emulate": {"rate": "500 Mb/s"}}
NATIVE = {"name": "native", "native": {}, "inside": True}
"""This machine as it is. It takes less time where the network doesn't matter."""


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test unless the packages are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} (scripts/trainers installs it)")


def measure(folder: Path, command: str, **settings: object) -> Result:
    """Runs a command of the folder of jobs on two emulated hosts, and returns the only result."""
    data = {
        "name": "test",
        "workloads": [{"name": "test", "command": command, **settings.pop("job", {})}],  # type: ignore[dict-item]
        "networks": [NETWORK],
        "hosts": [2],
        "iterations": 4,
        "warmup": 2,
        "profile_iterations": 2,
        "timeout": "120 s",
        "benchmark": False,
        **settings,
    }
    (result,) = run_study(Study.model_validate(data), folder / "out")
    return result


def python(script: str, *arguments: str) -> str:
    return shlex.join([sys.executable, str(JOBS / script), *arguments])


def processes_of(marker: str) -> list[str]:
    """Returns the command lines of processes that contain a text, without those of wirecost and of other tests."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if int(path.parent.name) != os.getpid():
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if marker in line and "-m wirecost" not in line and of_this_worker(path.parent):
                    lines.append(line)
            except OSError:
                continue
    return lines


def check_measured(result: Result, ranks: int = 2) -> None:
    assert result.outcome.status is Status.DONE, result.outcome
    breakdown = result.breakdown
    assert breakdown is not None and breakdown.network is not None
    assert breakdown.world_size == ranks
    assert {i.rank for i in breakdown.iterations} == set(range(ranks))
    assert len(breakdown.iteration_times_ns()) == 4
    assert breakdown.network.transport == "tcp"
    assert breakdown.comm_fraction() is None  # iterations are timed only
    profile = breakdown.profile
    assert profile is not None and profile.reason is None
    assert len(profile.iterations) == 2 * ranks
    exposed, hidden = breakdown.share("exposed_comm_ns"), breakdown.share("overlapped_ns")
    assert exposed is not None and hidden is not None and exposed.low < 1
    assert sum(i.parts.comm_ns for i in profile.iterations) > 0
    parts = {(i.rank, i.name): i.parts.exposed_comm_ns for i in profile.iterations}
    assert len(profile.comm) == len(parts) > 0
    for comm in profile.comm:
        sums = comm.transfer_ns + comm.wait_ns + comm.bubble_ns + comm.unknown_ns
        assert sums == parts[comm.rank, comm.name]


NETWORKS = {"emulated-300m", "emulated-100m", "native"}


@dataclass(frozen=True)
class Kept:
    """A job that `wirecost run --out` has measured: the folder, its arguments, and what was printed."""

    out: Path
    arguments: list[str]
    printed: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Plain DDP with accumulation, a forked data loader, two optimizers, and a handler of SIGTERM."""
    out = tmp_path_factory.mktemp("run") / "kept"
    arguments = ["--networks", ",".join(sorted(NETWORKS)), "--steps", "4", "--warmup", "2", "--profile", "2"]
    job = python("ddp.py", "--accumulate", "2", "--catch-sigterm", "--two-optimizers", "--workers", "1")
    arguments += ["--out", str(out), "--format", "json", "--", *shlex.split(job), "--iterations", "40"]
    printed = CliRunner().invoke(application(), ["run", *arguments])
    assert printed.exit_code == 0, printed.output
    assert not processes_of(str(JOBS / "ddp.py"))
    return Kept(out, arguments, printed.stdout)


def test_plain_ddp_is_measured_unchanged(kept: Kept) -> None:
    results = Store(kept.out).contents(every_byte=True).results
    assert {r.experiment.network.name for r in results} == NETWORKS
    for result in results:
        assert isinstance(result.experiment, JobExperiment)
        check_measured(result)


def test_the_command_prints_a_table(kept: Kept) -> None:
    document = json.loads(kept.printed)
    assert {row["network"] for row in document["rows"]} == NETWORKS
    assert {row["transport"] for row in document["rows"]} == {"tcp"}


def test_commands_for_studies_read_what_a_run_has_kept(kept: Kept) -> None:
    runner = CliRunner()
    report = runner.invoke(application(), ["report", str(kept.out)])
    assert report.exit_code == 0 and "emulated-300m" in report.output and "None" not in report.output
    compared = runner.invoke(application(), ["compare", str(kept.out), str(kept.out)])
    assert compared.exit_code == 0, compared.output
    resumed = runner.invoke(application(), ["run", "--resume", *kept.arguments])
    assert resumed.exit_code == 0, resumed.output
    assert json.loads(resumed.stdout)["rows"] == json.loads(kept.printed)["rows"]


def test_a_further_network_joins_the_results_of_the_folder(kept: Kept, tmp_path: Path) -> None:
    out, runner = tmp_path / "out", CliRunner()
    shutil.copytree(kept.out, out)
    arguments = [str(out) if argument == str(kept.out) else argument for argument in kept.arguments]
    refused = runner.invoke(application(), ["run", "--resume", *arguments, "--catch-sigterm"])
    assert isinstance(refused.exception, StoreError) and "holds results of another command" in str(
        refused.exception
    )
    arguments[arguments.index("--networks") + 1] = "emulated-1g"
    resumed = runner.invoke(application(), ["run", "--resume", *arguments])
    assert resumed.exit_code == 0, resumed.output
    everything = NETWORKS | {"emulated-1g"}
    assert {row["network"] for row in json.loads(resumed.stdout)["rows"]} == everything
    report = json.loads(runner.invoke(application(), ["report", str(out), "--format", "json"]).stdout)
    assert {row["network"] for row in report["experiments"]} == everything
    validated = json.loads(runner.invoke(application(), ["validate", str(out), "--format", "json"]).stdout)
    assert len(validated["rows"]) == 6  # each of three emulated networks from the traces of the others


def test_every_command_prints_the_same_exposed_share(kept: Kept) -> None:
    def answer(*arguments: str) -> dict[str, Any]:
        printed = CliRunner().invoke(application(), [*arguments, "--format", "json"])
        assert printed.exit_code == 0, printed.output
        return json.loads(printed.stdout)

    shares = {
        row["network"]: (row["exposed_fraction_low"], row["exposed_fraction_high"])
        for row in json.loads(kept.printed)["rows"]
    }
    assert len(shares) == len(NETWORKS) and None not in {end for ends in shares.values() for end in ends}
    experiments = answer("report", str(kept.out))["experiments"]
    assert {e["network"]: (e["comm_fraction_low"], e["comm_fraction_high"]) for e in experiments} == shares
    compared = {}
    for pair in answer("compare", str(kept.out), str(kept.out))["pairs"]:
        (part,) = (p for p in pair["comparison"]["parts"] if p["part"] == "exposed_comm_ns")
        compared[pair["network"]] = part["before_share_low"], part["before_share_high"]
        assert (part["after_share_low"], part["after_share_high"]) == compared[pair["network"]]
    assert compared == shares
    for result in Store(kept.out).contents(every_byte=True).results:
        name = result.experiment.network.name
        one = answer("compare", str(result.directory), str(result.directory))
        (part,) = (p for p in one["parts"] if p["part"] == "exposed_comm_ns")
        assert (part["before_share_low"], part["before_share_high"]) == shares[name]
        (row,) = (r for r in load(result.directory).rows() if r["part"] == "exposed communication")
        assert (row["share_low"], row["share_high"]) == shares[name]


def test_a_command_is_predicted_from_its_traces_over_another_network(kept: Kept) -> None:
    printed = CliRunner().invoke(application(), ["validate", str(kept.out), "--format", "json"])
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    asked = {(row["network"], row["question"]) for row in found["rows"]}
    assert asked == {
        ("emulated-300m", "network emulated-100m"),
        ("emulated-100m", "network emulated-300m"),
    }
    (left,) = found["left_out"]  # it has both ranks on one host
    assert "native" in left["cell"] and left["reason"].startswith("no other measured experiment differs")
    for row in found["rows"]:
        assert row["ranks"] == 2 and row["measured_s"] > 0
        assert row["low_s"] <= (row["predicted_s"] or row["low_s"]) <= row["high_s"]
        assert (row["error"] is None) != (row["outside"] is None)
    assert validate(kept.out).rows() == found["rows"]
    shown = CliRunner().invoke(application(), ["validate", str(kept.out)]).output
    assert "predicted from traces of another experiment" in shown


@pytest.mark.parametrize(
    ("option", "words"),
    [("--predictions", "every workload is a command, whose model is unknown"), ("--calibration", "nowhere")],
)
def test_what_does_not_predict_a_command_is_said(kept: Kept, option: str, words: str) -> None:
    validated = CliRunner().invoke(application(), ["validate", str(kept.out), option, "nowhere"])
    assert isinstance(validated.exception, SpecError)
    assert words in str(validated.exception)


def test_fsdp2_is_measured(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, python("fsdp2.py")))


@needs("transformers", "accelerate")
def test_a_hugging_face_trainer_is_measured(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, python("hugging_face.py", str(tmp_path / "model"))))


@needs("lightning")
def test_a_lightning_trainer_is_measured(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, python("lightning_trainer.py", str(tmp_path / "model"))))


@needs("lightning", "litgpt")
def test_a_litgpt_model_is_measured(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, python("litgpt_fabric.py")))


def test_ranks_that_a_job_spawns_itself_are_found(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, python("spawned.py")), ranks=4)


def test_torchrun_gets_its_rendezvous(tmp_path: Path) -> None:
    command = f"torchrun --standalone --nproc-per-node 2 {JOBS / 'ddp.py'}"
    result = measure(tmp_path, command)
    check_measured(result, ranks=4)
    assert result.experiment.ranks == 4


def test_torchrun_inside_a_shell_script_gets_its_rendezvous(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun {JOBS / 'ddp.py'}\n")
    # Started once on each host, as a rank, whose variables torchrun replaces.
    check_measured(measure(tmp_path, f"bash {script}"))


@needs("accelerate")
def test_accelerate_launch_gets_its_ranks(tmp_path: Path) -> None:
    check_measured(measure(tmp_path, f"accelerate launch --cpu --num_processes 2 {JOBS / 'ddp.py'}"))


def test_spawned_data_loaders_are_no_ranks(tmp_path: Path) -> None:
    arguments = ("--workers", "1", "--start-method", "spawn", "--iterations", "20")
    check_measured(measure(tmp_path, python("ddp.py", *arguments)))
    assert not processes_of(str(JOBS / "ddp.py"))


@pytest.mark.parametrize("iteration", ["0", "3"])  # before the first step, and after it
def test_a_crash_names_the_rank_and_its_error(tmp_path: Path, iteration: str) -> None:
    outcome = measure(tmp_path, python("ddp.py", "--crash-at", iteration)).outcome
    assert (outcome.status, outcome.rank) == (Status.FAILED, 1)
    assert outcome.reason == "rank 1: ZeroDivisionError: the test's own error"
    assert outcome.traceback is not None and "ddp.py" in outcome.traceback
    assert not processes_of(str(JOBS / "ddp.py"))


def test_a_hang_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    outcome = measure(tmp_path, python("ddp.py", "--hang-at", "3"), timeout="40 s").outcome
    assert (outcome.status, outcome.rank) == (Status.FAILED, 1)
    assert outcome.reason is not None and "rank 1 had completed 3 of" in outcome.reason
    assert not processes_of(str(JOBS / "ddp.py"))


def test_a_job_that_ends_early_is_measured_as_far_as_it_went(tmp_path: Path) -> None:
    result = measure(tmp_path, python("ddp.py", "--iterations", "5"))
    assert result.outcome.status is Status.DONE and result.breakdown is not None
    assert len(result.breakdown.iteration_times_ns()) == 3
    assert "measured_short" in {d.code for d in result.breakdown.diagnostics}
    assert result.breakdown.profile is not None and result.breakdown.profile.reason is not None


def test_a_job_without_output_and_iterations_says_what_to_do(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'import time; time.sleep(0.1)'"
    outcome = measure(tmp_path, command, networks=[NATIVE]).outcome
    assert outcome.status is Status.FAILED
    assert outcome.reason is not None and "--iteration-regex" in outcome.reason


def test_a_job_that_fails_without_output_says_so(tmp_path: Path) -> None:
    outcome = measure(tmp_path, f"{sys.executable} -c 'raise SystemExit(7)'", networks=[NATIVE]).outcome
    # Both end at once.
    assert (outcome.status, outcome.reason) in [
        (Status.FAILED, f"rank {rank} ended with exit code 7 and wrote no output") for rank in (0, 1)
    ]


def test_hosts_that_train_apart_are_no_measurement(tmp_path: Path) -> None:
    script = "import torch\nm = torch.nn.Linear(4, 4)\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
    script += "for _ in range(50):\n    m(torch.randn(2, 4)).sum().backward()\n    o.step()\n"
    (tmp_path / "alone.py").write_text(script)
    outcome = measure(tmp_path, f"{sys.executable} {tmp_path / 'alone.py'}").outcome
    assert outcome.status is Status.FAILED
    assert outcome.reason is not None and "1 rank of 1 although 2 were started" in outcome.reason


def test_lines_of_output_end_iterations_of_other_programs(tmp_path: Path) -> None:
    command = "bash -c 'for i in $(seq 12); do echo step $i; sleep 0.05; done'"
    result = measure(tmp_path, command, job={"iteration_regex": r"^step \d+"}, networks=[NATIVE])
    assert result.outcome.status is Status.DONE, result.outcome
    assert result.breakdown is not None and result.breakdown.profile is None
    times_ns = result.breakdown.iteration_times_ns()
    assert len(times_ns) == 4 and min(times_ns) > 40e6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_by_a_signal_leaves_nothing_behind(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "wirecost", "run", "--networks", "emulated-300m", "--steps", "5000"]
    process = subprocess.Popen([*command, "--", *shlex.split(python("ddp.py"))], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: bool(processes_of(str(JOBS / "ddp.py"))))
        process.send_signal(number)
        assert process.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    finally:
        process.kill()
    wait_until(lambda: not processes_of(str(JOBS / "ddp.py")))


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_ranks_under_torchrun_are_measured_in_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    launcher = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "wirecost"]
    run = ["run", "--networks", "native", "--steps", "4", "--warmup", "2", "--profile", "2", "--out", str(out)]
    command = [*launcher, *run, "--format", "json", "--", *shlex.split(python("ddp.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["network"], row["ranks"], row["status"], row["iterations"]) == ("native", 2, "done", 4)
    (result,) = Store(out).contents(every_byte=True).results
    check_measured(result)
    assert not processes_of(str(JOBS / "ddp.py"))
