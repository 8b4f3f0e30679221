"""Commands as workloads: their keys, their experiments, and the launchers that they start."""

import shlex

import pytest

from wirecost.errors import SpecError
from wirecost.spec import JobExperiment, Study, parse_yaml, to_yaml, validate
from wirecost.spec.launcher import lacks_script, launcher_of, ranks_per_host_of, script_of

STUDY = """
name: s
workloads: [{name: mine, command: "python train.py --name 'two words'"}]
networks: [emulated-1g, nvlink]
hosts: [2, 2x3]
"""
MIXED = STUDY.replace("[{", "[gpt-tiny, {") + "plans: [ddp]\nscaling: [{kind: weak, micro_batch: 1}]\n"


def study(text: str) -> Study:
    return validate(Study, parse_yaml(text, "s.yaml"), "s.yaml")


def test_a_command_runs_once_over_every_network_and_number_of_hosts() -> None:
    experiments = study(STUDY).experiments()
    shapes = [(e.network.name, e.hosts, e.ranks_per_host) for e in experiments]
    assert shapes == [("emulated-1g", 2, 1), ("nvlink", 1, 2), ("emulated-1g", 2, 3), ("nvlink", 1, 6)]
    first = experiments[0]
    assert isinstance(first, JobExperiment)
    assert first.job.command == ("python", "train.py", "--name", "two words")
    assert (first.iterations, first.warmup, first.profile_iterations) == (20, 5, 3)
    assert len({e.slug for e in experiments}) == 4


def test_a_network_may_have_hosts_of_its_own() -> None:
    text = STUDY + "network_hosts: {emulated-1g: [4, 2x3]}\n"
    shapes = [(e.network.name, e.hosts, e.ranks_per_host) for e in study(text).job_experiments()]
    assert shapes == [("nvlink", 1, 2), ("emulated-1g", 2, 3), ("nvlink", 1, 6), ("emulated-1g", 4, 1)]
    assert [e.slug for e in study(to_yaml(study(text))).experiments()] == [
        e.slug for e in study(text).experiments()
    ]
    assert "network_hosts" not in to_yaml(study(STUDY))


def test_models_and_commands_share_a_study() -> None:
    mixed = study(MIXED)
    assert [w.name for w in mixed.models] == ["gpt-tiny"] and [j.name for j in mixed.jobs] == ["mine"]
    assert len(mixed.experiments()) == len(mixed.model_experiments()) + len(mixed.job_experiments()) > 4
    model = mixed.model_experiments()[0]
    assert (model.iterations, model.warmup, model.profile_iterations) == (8, 2, 0)


@pytest.mark.parametrize("text", [STUDY, MIXED])
def test_a_study_reads_back_as_it_was_written(text: str) -> None:
    first = study(text)
    again = study(to_yaml(first))
    assert again == first
    assert [e.slug for e in again.experiments()] == [e.slug for e in first.experiments()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("command: \"python train.py --name 'two words'\"", 'command: "python \'x"'), "No closing quotation"),
        (("command: \"python train.py --name 'two words'\"", "command: []"), "workloads[0].command"),
        (("{name: mine,", "{name: mine, iteration_regex: '(',"), "is no regular expression"),
        (("{name: mine,", "{name: mine, layers: 3,"), "layers"),
        (("[{name: mine,", "[gpt-tiny, {name: mine,"), "plans: is missing"),
        (("hosts:", "network_hosts: {emulated-2g: [2]}\nhosts:"), "network_hosts: unknown network 'emulated-2g'"),
        (("hosts:", "network_hosts: {nvlink: []}\nhosts:"), "network_hosts.nvlink"),
        (("hosts:", "network_hosts: {nvlink: [0]}\nhosts:"), "network_hosts.nvlink"),
        (("hosts:", "network_hosts: [2]\nhosts:"), "network_hosts"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(change: tuple[str, str], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        study(STUDY.replace(*change))
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert "function-" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "kind", "prefix", "per_host"),
    [
        ("torchrun --nproc-per-node 4 t.py", "torchrun", 1, 4),
        ("/x/bin/torchrun --nproc_per_node=auto t.py", "torchrun", 1, None),
        ("python -m torch.distributed.run t.py", "torchrun", 3, 1),
        ("python3.11 -u -m torch.distributed.launch --nproc-per-node=2 t.py", "torchrun", 4, 2),
        ("python /x/bin/torchrun --nproc-per-node 2 t.py", "torchrun", 2, 2),
        ("accelerate launch --num_processes 4 t.py", "accelerate", 2, 2),
        ("accelerate launch --num_processes 8 --num_machines 4 t.py", "accelerate", 2, 2),
        ("accelerate launch t.py", "accelerate", 2, None),
        ("accelerate config", None, 0, None),
        ("python train.py --nproc-per-node 4", None, 0, None),
        ("python -m my.module torchrun", None, 0, None),
        ("bash run.sh", None, 0, None),
    ],
)
def test_launchers_are_recognised(command: str, kind: str | None, prefix: int, per_host: int | None) -> None:
    arguments = command.split()
    launcher = launcher_of(arguments)
    assert (launcher.kind if launcher else None) == kind
    assert (launcher.prefix if launcher else 0) == prefix
    assert ranks_per_host_of(arguments, 2) == per_host


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --config other.py", "train.py"),
        ("python -u -W ignore src/train.py", "src/train.py"),
        ("/usr/bin/python3.11 train.py", "train.py"),
        ("bash train.sh", "train.sh"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", "train.py"),
        ("accelerate launch --config_file a.yaml train.py", "train.py"),
        ("torchrun --log-dir a.py train.py", "train.py"),
        ("torchrun --standalone train.py", None),
        ("torchrun -m train", None),
        ("python -m train other.py", None),
        ("python -c 'import train' other.py", None),
        ("python train other.py", None),
        ("uv run --directory src train.py", None),
        ("./train.py", None),
        ("mine --script train.py", None),
    ],
)
def test_the_script_of_a_command_is_found_where_it_is_certain(command: str, script: str | None) -> None:
    assert script_of(shlex.split(command)) == script


@pytest.mark.parametrize(
    "command",
    [
        "python",
        "python3.11 -u",
        "python -X dev -W ignore",
        "python -",
        "bash -e",
        "sh -s",
        "env A=1 python3",
        "nice python",
    ],
)
def test_an_interpreter_without_a_script_is_recognised(command: str) -> None:
    assert lacks_script(shlex.split(command))


@pytest.mark.parametrize(
    "command",
    [
        "python train.py", "python train", "python -m train", "python -um train", "python -c 'import train'",
        "python -X dev train", "bash -lc 'torchrun train.py'", "bash -e train.sh", "./python", "true", "torchrun",
        "env -u A python train.py", "uv run train",
    ],
)  # fmt: skip
def test_other_commands_have_what_they_run(command: str) -> None:
    assert lacks_script(shlex.split(command)) is (command == "./python")
