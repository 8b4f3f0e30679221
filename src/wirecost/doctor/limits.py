"""Checks limits of the process or its container: locked memory, shared memory, open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine
from wirecost.doctor.rdma import Port

_MEMLOCK_LEAST = 64 << 20  # RDMA registers its buffers; NCCL's take tens of MiB per GPU
_SHM_LEAST = 1 << 30  # docker's default of 64 MiB is too small for NCCL's rings
_FILES_LEAST = 4096  # one socket for each peer, channel and thread


def in_container(machine: Machine) -> str | None:
    """Returns the kind of the container; None outside of one."""
    if machine.exists(".dockerenv"):
        return "docker"
    if machine.exists("run/.containerenv"):
        return "podman"
    words = (machine.text("proc/1/cgroup") or "") + (machine.text("proc/1/environ") or "")
    return next(
        (w for w in ("kubepods", "docker", "containerd", "lxc", "apptainer", "enroot") if w in words), None
    )


def probe(machine: Machine, ports: list[Port]) -> Iterator[Diagnostic]:
    container = in_container(machine)
    if container:
        yield diagnostic(
            "in_container",
            f"inside a container ({container}): NCCL can't use devices that the container doesn't pass in",
        )
    if not machine.live:
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if ports and 0 <= locked < _MEMLOCK_LEAST:
        yield diagnostic(
            "locked_memory_limited",
            f"locked memory is limited to {locked >> 10} KiB: RDMA can't register its buffers",
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < _FILES_LEAST:
        yield diagnostic(
            "open_files_limited",
            f"only {files} open files are allowed; NCCL's sockets need many on a big job",
        )
    try:
        shm = os.statvfs(machine.root / "dev/shm")
    except OSError:
        yield diagnostic(
            "shm_missing",
            "no /dev/shm: NCCL's shared-memory transport can't work",
        )
        return
    size = shm.f_blocks * shm.f_frsize
    if size < _SHM_LEAST:
        yield diagnostic(
            "shm_small",
            f"shared memory (/dev/shm) has {size >> 20} MiB: NCCL's SHM transport and data loaders run out of it",
        )
