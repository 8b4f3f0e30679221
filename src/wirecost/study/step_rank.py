"""One rank of an experiment that another launcher started: `python -m wirecost.study.step_rank DIRECTORY`.

As a task of a Slurm step it sets the variables that torchrun would set, from Slurm's. Under torchrun they are set.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NoReturn

from wirecost.errors import WirecostError
from wirecost.launch.environment import nccl_log_environment
from wirecost.launch.rendezvous import MEETING
from wirecost.launch.world import World, slurm_world
from wirecost.train.worker import run_here


def variables_of(world: World, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns torchrun's variables for a task of a Slurm step."""
    cores = environment.get("SLURM_CPUS_PER_TASK") or str(max(1, len(os.sched_getaffinity(0)) // world.local_size))
    return {
        "RANK": str(world.rank),
        "WORLD_SIZE": str(world.size),
        "LOCAL_RANK": str(world.local_rank),
        "LOCAL_WORLD_SIZE": str(world.local_size),
        "MASTER_ADDR": reachable_address(world.address or "", environment),
        "MASTER_PORT": str(world.port),
        "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", cores),
    }


def reachable_address(name: str, environment: Mapping[str, str]) -> str:
    """Returns an IP address of the first node that all nodes can reach.

    A node may resolve its own name to a loopback address. The address of the node that started srun, which is the
    first one in a batch script, is used then.
    """
    launcher = environment.get("SLURM_LAUNCH_NODE_IPADDR", "")
    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return address
    except (OSError, ValueError, UnicodeError):
        address = ""
    return launcher or address or name


def meeting_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variable with which the ranks of a Slurm step meet at a port that is free on the first node.

    Empty if the user set MASTER_PORT.
    """
    if "MASTER_PORT" in environment:
        return {}
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return {MEETING: "-".join(environment.get(name, "0") for name in names)}


def main() -> NoReturn:
    """Runs the rank of this module's command line.

    Raises:
        WirecostError: if neither srun nor torchrun started it.
    """
    directory = Path(sys.argv[1])
    if MEETING in os.environ:
        rank = under_torchrun(os.environ)
        write_to(directory / "logs" / f"rank-{rank}.log")
    elif (world := slurm_world(os.environ)) is not None:
        rank = world.rank
        os.environ |= variables_of(world, os.environ) | meeting_of(os.environ)
    else:
        raise WirecostError("wirecost.study.step_rank: no rank of a Slurm step: start it with srun")
    os.environ |= nccl_log_environment(directory / "logs" / f"nccl-{rank}.log")
    run_here(directory)


def under_torchrun(environment: MutableMapping[str, str]) -> int:
    """Returns the rank that torchrun gave, and sets the number of threads.

    torchrun sets one thread for several ranks on a machine. As elsewhere, its cores are divided among them.

    Raises:
        WirecostError: if torchrun didn't start this process.
    """
    rank, local_size = environment.get("RANK", ""), environment.get("LOCAL_WORLD_SIZE", "")
    if not rank.isdigit() or not local_size.isdigit():
        raise WirecostError("wirecost.study.step_rank: torchrun's variables are missing")
    environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // max(1, int(local_size))))
    return int(rank)


def write_to(path: Path) -> None:
    """Sends the output of this process to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


if __name__ == "__main__":
    main()
