"""One rank of an experiment as a task of a Slurm step: `python -m wirecost.study.step_rank DIRECTORY`.

It sets the variables that torchrun would set, from Slurm's, and runs the rank.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from wirecost.collectives.launcher import World, slurm_world
from wirecost.errors import WirecostError
from wirecost.launch.environment import nccl_log_environment
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


def main() -> NoReturn:
    """Runs the rank of this module's command line.

    Raises:
        WirecostError: if it wasn't started by srun.
    """
    directory = Path(sys.argv[1])
    world = slurm_world(os.environ)
    if world is None:
        raise WirecostError("wirecost.study.step_rank: no rank of a Slurm step: start it with srun")
    os.environ |= variables_of(world, os.environ)
    os.environ |= nccl_log_environment(directory / "logs" / f"nccl-{world.rank}.log")
    run_here(directory)


if __name__ == "__main__":
    main()
