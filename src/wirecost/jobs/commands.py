"""The command that is started on a host: the user's, or the user's launcher with a rendezvous of this job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirecost.spec.launcher import Launcher, launcher_of

_REPLACED = {
    "torchrun": {
        "--standalone": False,
        "--nnodes": True,
        "--node-rank": True,
        "--master-addr": True,
        "--master-port": True,
        "--rdzv-backend": True,
        "--rdzv-endpoint": True,
        "--rdzv-id": True,
        "--rdzv-conf": True,
        "--max-restarts": True,
        "--nproc-per-node": True,
    },
    "accelerate": {
        "--num-machines": True,
        "--machine-rank": True,
        "--main-process-ip": True,
        "--main-process-port": True,
        "--num-processes": True,
        "--rdzv-backend": True,
    },
    "fabric": {
        "--devices": True,
        "--num-nodes": True,
        "--node-rank": True,
        "--main-address": True,
        "--main-port": True,
    },
}
"""Options of launchers that this job decides, and whether each has a value."""

_VALUELESS = {
    "torchrun": {"--no-python", "--virtual-local-rank", "--run-path"},
    "accelerate": {
        "--cpu", "--debug", "--downcast-bf16", "--dynamo-use-dynamic", "--dynamo-use-fullgraph",
        "--dynamo-use-regional-compilation", "--enable-cpu-affinity", "--fp8-use-autocast-during-eval",
        "--multi-gpu", "--no-python", "--no-tpu-cluster", "--quiet", "--same-network", "--tpu", "--tpu-cluster",
        "--tpu-use-sudo", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm", "--use-parallelism-config", "-q",
    },
    "fabric": set(),
}  # fmt: skip
"""Further options of launchers that have no value, with dashes inside."""
_OWN_KINDS = ("--multi_gpu", "--use_fsdp", "--use_deepspeed", "--use_megatron_lm", "--tpu", "--config_file")


@dataclass(frozen=True)
class Place:
    """A host of a job.

    Attributes:
        host: number of the host.
        hosts: number of hosts.
        ranks_per_host: number of ranks on each host.
        address: address of host 0.
        port: port of the rendezvous on host 0.
    """

    host: int
    hosts: int
    ranks_per_host: int
    address: str
    port: int


def starts_ranks(command: Sequence[str], *, gpus: bool) -> bool:
    """Returns whether a command is a launcher, which is started once on each host. Other commands are started once
    for each rank.

    On CPUs, `accelerate launch` starts the script once, so that it counts as the script.
    """
    launcher = launcher_of(command)
    return launcher is not None and (launcher.kind != "accelerate" or _on_gpus(command, launcher, gpus=gpus))


def _on_gpus(command: Sequence[str], launcher: Launcher, *, gpus: bool) -> bool:
    return gpus and "--cpu" not in command[launcher.prefix :]


def command_on(command: Sequence[str], place: Place, *, gpus: bool) -> list[str]:
    """Returns the command that is started on a host.

    A command without a launcher is returned unchanged. A launcher gets the rendezvous and the number of ranks of
    this job instead of its own.
    """
    launcher = launcher_of(command)
    if launcher is None:
        return list(command)
    head, rest = list(command[: launcher.prefix]), list(command[launcher.prefix :])
    kept = _without(rest, launcher)
    if launcher.kind == "torchrun":
        options = [
            f"--nnodes={place.hosts}",
            f"--node-rank={place.host}",
            f"--nproc-per-node={place.ranks_per_host}",
            f"--master-addr={place.address}",
            f"--master-port={place.port}",
            "--max-restarts=0",
        ]
    elif launcher.kind == "fabric":
        options = [
            f"--num-nodes={place.hosts}",
            f"--node-rank={place.host}",
            f"--devices={place.ranks_per_host}",
            f"--main-address={place.address}",
            f"--main-port={place.port}",
        ]
    elif not _on_gpus(command, launcher, gpus=gpus):
        # The script reads its rank from the environment.
        options = ["--num_machines=1", "--num_processes=1"]
    else:
        options = [
            f"--num_machines={place.hosts}",
            f"--machine_rank={place.host}",
            f"--num_processes={place.hosts * place.ranks_per_host}",
            f"--main_process_ip={place.address}",
            f"--main_process_port={place.port}",
            "--rdzv_backend=static",
        ]
        chosen = any(_dashes(a.partition("=")[0]) in map(_dashes, _OWN_KINDS) for a in rest)
        if not chosen and place.hosts * place.ranks_per_host > 1:
            options.append("--multi_gpu")
    return [*head, *options, *kept]


def _without(arguments: Sequence[str], launcher: Launcher) -> list[str]:
    """Returns a launcher's arguments without the options that this job decides."""
    replaced, valueless = _REPLACED[launcher.kind], _VALUELESS[launcher.kind]
    kept: list[str] = []
    place = 0
    while place < len(arguments):
        argument = arguments[place]
        name, equals, _ = argument.partition("=")
        name = _dashes(name)
        if not argument.startswith("-"):
            return [*kept, *arguments[place:]]
        if argument in ("-m", "--module"):
            return [*kept, *arguments[place:]]
        has_value = not equals and replaced.get(name, name not in valueless)
        takes = 2 if has_value and place + 1 < len(arguments) else 1
        if name not in replaced:
            kept += arguments[place : place + takes]
        place += takes
    return kept


def _dashes(option: str) -> str:
    """Returns an option with dashes inside, which launchers accept for underscores."""
    return option.replace("_", "-")
