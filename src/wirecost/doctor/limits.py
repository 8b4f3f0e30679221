"""What a container or a limit takes away: locked memory, shared memory, open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from wirecost.doctor.finding import Finding, Level, Machine
from wirecost.doctor.rdma import Port

AREA = "limits"
_MEMLOCK_LEAST = 64 << 20  # RDMA registers its buffers; NCCL's own take tens of MiB a GPU
_SHM_LEAST = 1 << 30  # docker's default of 64 MiB is too small for NCCL's rings
_FILES_LEAST = 4096  # a socket a peer, channel and thread


def in_container(machine: Machine) -> str | None:
    """What the container is called, or None outside of one."""
    if machine.exists(".dockerenv"):
        return "docker"
    if machine.exists("run/.containerenv"):
        return "podman"
    words = (machine.text("proc/1/cgroup") or "") + (machine.text("proc/1/environ") or "")
    return next(
        (w for w in ("kubepods", "docker", "containerd", "lxc", "apptainer", "enroot") if w in words), None
    )


def probe(machine: Machine, ports: list[Port]) -> Iterator[Finding]:
    container = in_container(machine)
    if container:
        yield Finding(
            AREA, Level.NOTE, f"inside a container ({container}): what it doesn't pass in, NCCL can't use"
        )
    if not machine.live:
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if ports and 0 <= locked < _MEMLOCK_LEAST:
        yield Finding(
            AREA,
            Level.PROBLEM,
            f"locked memory is limited to {locked >> 10} KiB: RDMA can't register its buffers",
            "ulimit -l unlimited (docker: --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK)",
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < _FILES_LEAST:
        yield Finding(
            AREA,
            Level.WARNING,
            f"only {files} open files are allowed; NCCL's sockets need many on a big job",
            "ulimit -n 65536",
        )
    try:
        shm = os.statvfs(machine.root / "dev/shm")
    except OSError:
        yield Finding(
            AREA,
            Level.PROBLEM,
            "no /dev/shm: NCCL's shared-memory transport can't work",
            "mount a tmpfs on /dev/shm",
        )
        return
    size = shm.f_blocks * shm.f_frsize
    if size < _SHM_LEAST:
        yield Finding(
            AREA,
            Level.WARNING,
            f"shared memory (/dev/shm) has {size >> 20} MiB: NCCL's SHM transport and data loaders run out of it",
            "docker: --shm-size=8g or --ipc=host; kubernetes: an emptyDir with medium Memory on /dev/shm",
        )
