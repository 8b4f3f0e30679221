"""Batch scripts for Slurm, shapes of allocations, and the variables of a step's ranks."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from wirecost.errors import SpecError
from wirecost.launch.rendezvous import MEETING
from wirecost.launch.step import StepRanks, srun_command
from wirecost.launch.world import World
from wirecost.spec import Study, parse_yaml, validate
from wirecost.spec.network import Native, Network
from wirecost.study.allocation import Allocation
from wirecost.study.slurm import SlurmOptions, script_of
from wirecost.study.step_rank import meeting_of, reachable_address, variables_of

TEXT = """\
name: my-study
workloads: [gpt-tiny]
networks: [{name: real, native: {}}, emulated-1g]
plans: [ddp]
hosts: [1, 2]
ranks_per_host: 4
scaling: [{kind: weak, micro_batch: 2}]
"""
STUDY = validate(Study, parse_yaml(TEXT, "study"), "study")


def script(allocation: Allocation, options: SlurmOptions = SlurmOptions(), study: Study = STUDY) -> str:
    return script_of(study, Path("/shared/100% mine"), allocation, options, 3)


def test_experiments_of_a_shape_share_an_allocation_and_emulated_hosts_need_one_node() -> None:
    shapes = sorted({Allocation.of(experiment) for experiment in STUDY.model_experiments()})
    assert [shape.name for shape in shapes] == ["1x4", "1x4-emulated", "2x4", "2x4-emulated"]
    assert [(shape.nodes, shape.tasks_per_node) for shape in shapes] == [(1, 4), (1, 4), (2, 4), (1, 8)]
    assert [Allocation.named(shape.name) for shape in shapes] == shapes
    assert sum(len(shape.fitting(STUDY.model_experiments())) for shape in shapes) == len(STUDY.model_experiments())


@pytest.mark.parametrize("name", ["2", "2x", "x2", "0x2", "2x2-native", "2x2x2", ""])
def test_other_names_are_no_shapes(name: str) -> None:
    with pytest.raises(ValueError, match="a shape is like 2x8"):
        Allocation.named(name)


def test_the_script_asks_for_the_nodes_and_runs_the_shape() -> None:
    lines = script(Allocation(2, 4, False), SlurmOptions(partition="gpu", time="1:00:00")).splitlines()
    assert lines[0] == "#!/bin/bash"
    given = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH")]
    options = {name: value for name, _, value in given}
    assert (options["nodes"], options["ntasks-per-node"]) == ("2", "4")
    assert (options["partition"], options["time"], options["signal"]) == ("gpu", "1:00:00", "B:TERM@60")
    assert shlex.split(options["output"]) == ["/shared/100%% mine/slurm/2x4-%j.log"]
    assert "array" not in options
    assert "gpus-per-node" not in options
    command = shlex.split(lines[-1])
    assert command[0] == "exec"
    assert command[-5:] == ["--resume", "--launcher", "srun", "--shape", "2x4"]
    assert "/shared/100% mine" in command


def test_several_jobs_share_a_shape_and_none_is_idle() -> None:
    assert "#SBATCH --array=1-2\n" in script(Allocation(2, 4, False), SlurmOptions(parallel=2))
    assert "#SBATCH --array=1-3\n" in script(Allocation(2, 4, False), SlurmOptions(parallel=50))


def test_gpus_are_asked_for() -> None:
    text = TEXT.replace("emulated-1g", "{name: more, native: {}}") + "device: cuda\n"
    study = validate(Study, parse_yaml(text, "study"), "study")
    assert "#SBATCH --gpus-per-node=4\n" in script(Allocation(2, 4, False), study=study)


@pytest.mark.parametrize("text", ["qos high", "-p", "qos=a\nrm -rf /", "=x", "QOS=x"])
def test_an_option_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"(?s)sbatch: .* is no option; write it as qos=high"):
        script(Allocation(1, 1, False), SlurmOptions(more=(text,)))


def test_values_are_quoted() -> None:
    text = script(Allocation(1, 1, False), SlurmOptions(container_image="a b$(date)"))
    assert "export WIRECOST_CONTAINER_IMAGE='a b$(date)'" in text


def test_a_rank_gets_the_variables_of_torchrun() -> None:
    world = World("srun", 5, 8, 1, 4, "192.0.2.7", 23456)
    variables = variables_of(world, {"SLURM_CPUS_PER_TASK": "6"})
    assert variables == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "192.0.2.7",
        "MASTER_PORT": "23456",
        "OMP_NUM_THREADS": "6",
    }


def test_rank_0_of_a_step_chooses_the_port_unless_the_user_did() -> None:
    step = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "3"}
    assert meeting_of(step) == {MEETING: "42-3-0"}
    assert meeting_of(step | {"SLURM_RESTART_COUNT": "1"}) == {MEETING: "42-3-1"}
    assert meeting_of(step | {"MASTER_PORT": "29500"}) == {}


def test_a_loopback_address_is_not_given_to_other_nodes() -> None:
    assert reachable_address("localhost", {"SLURM_LAUNCH_NODE_IPADDR": "192.0.2.9"}) == "192.0.2.9"
    assert reachable_address("no.such.host.invalid", {"SLURM_LAUNCH_NODE_IPADDR": "192.0.2.9"}) == "192.0.2.9"
    assert reachable_address("192.0.2.7", {"SLURM_LAUNCH_NODE_IPADDR": "192.0.2.9"}) == "192.0.2.7"


def test_the_step_has_a_task_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    command = srun_command(8, 4, Path("/x/50%"))
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--output=/x/50%%/logs/rank-%t.log"} <= set(command)
    monkeypatch.setenv("WIRECOST_CONTAINER_IMAGE", "image.sqsh")
    assert "--container-image=image.sqsh" in srun_command(8, 4, Path("/x"))


@pytest.mark.parametrize(
    ("log", "status", "rank", "words"),
    [
        ("srun: error: node2: task 3: Killed", "failed", 3, "rank 3 ended: Killed"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\nsrun: error: n1: task 1: Out Of Memory",
         "out_of_memory", None, "memory ran out"),
        ("srun: error: Node failure on node2", "failed", None, "a node was lost: srun: error: Node failure on node2"),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "failed", None,
         "Slurm ended it"),
        ("srun: error: Unable to create step", "failed", None, "srun ended with exit code 1: srun: error: Unable"),
        ("", "failed", None, "no message"),
    ],
)  # fmt: skip
def test_why_a_step_failed_is_read_from_what_srun_prints(
    log: str, status: str, rank: int | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "message").write_text(log)
    fake = tmp_path / "srun"
    fake.write_text(f"#!/bin/sh\ncat {tmp_path}/message >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    network = Network(name="real", native=Native())
    with StepRanks(["true"], tmp_path, 4, per_host=2, network=network) as step:
        result = step.watch(30.0, lambda _: 0)
    assert (result.status.value, result.rank) == (status, rank)
    assert words in (result.reason or "")
