"""Reads the processes of this machine from /proc (descent, state, shared memory), and ends them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# include/uapi/linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

PROC = Path("/proc")
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - only compared with
END_S = 5.0
"""Time in seconds that killed processes have to end. A process that hangs in the kernel takes longer."""
POLL_S = 0.01

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class ProcessState:
    """The state of a process.

    Attributes:
        letter: the state letter of proc_pid_stat(5) (R, S, D, T, t, Z).
        cpu_ticks: CPU time in clock ticks.
    """

    letter: str
    cpu_ticks: int


def process_state(pid: int) -> ProcessState | None:
    """Returns the state of a process, or None if the process doesn't exist."""
    try:
        # The name in parentheses may contain any character, also parentheses.
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # Fields 3 (state), 14 (utime) and 15 (stime) of proc_pid_stat(5).
    return ProcessState(fields[0].decode(), int(fields[11]) + int(fields[12])) if len(fields) > 12 else None


def process_start(pid: int) -> int | None:
    """Returns when a process started, in clock ticks since the machine booted, or None if it doesn't exist.

    Together with the process ID it identifies a process, because IDs are used again.
    """
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if len(fields) > 19 else None  # field 22 of proc_pid_stat(5)


def running() -> list[int]:
    """Returns the process IDs of all processes that this process can see."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def descendants(pid: int) -> list[int]:
    """Returns the process IDs of all descendants of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for process in running():
        with suppress(OSError, IndexError, ValueError):
            parent = int((PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(process)
    ordered: list[int] = []
    generation = children.get(pid, [])
    while generation:
        ordered += generation
        generation = [child for parent in generation for child in children.get(parent, [])]
    return ordered


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the thread of process `parent` that started it ends.

    If the parent has ended already, this process ends immediately.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def name_process(name: str) -> None:
    """Sets the name that ps and top show for this process (at most 15 bytes)."""
    _libc.prctl(PR_SET_NAME, name.encode())


def become_subreaper() -> None:
    """Makes this process the parent of all its orphaned descendants, so that none of them can escape it."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill(pids: Iterable[int]) -> None:
    """Kills processes, and skips those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_descendants(timeout_s: float = END_S) -> list[int]:
    """Kills all descendants of this process, which is a subreaper, and waits until they have ended.

    Returns:
        The process IDs of those that still exist after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while remaining := descendants(os.getpid()):
        # A process may have started another one since it was listed. Its orphans become children of this process.
        kill(remaining)
        reap()
        if time.monotonic() > deadline:
            return remaining
        time.sleep(POLL_S)
    return []


def end_tree(root: int, timeout_s: float = END_S) -> list[int]:
    """Kills a process and all its descendants, and waits until they have ended.

    The root needn't be a child of this process. It is killed last, because it may be a subreaper, and its
    descendants can be listed as long as it lives.

    Returns:
        The process IDs of those that still exist after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while (remaining := [pid for pid in descendants(root) if _lives(pid)]) and time.monotonic() < deadline:
        kill(remaining)
        time.sleep(POLL_S)
    kill([root])
    while (remaining := [pid for pid in {root, *remaining} if _lives(pid)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return remaining


def _lives(pid: int) -> bool:
    state = process_state(pid)
    return state is not None and state.letter not in "ZX"


def reap(*, except_for: int | None = None) -> None:
    """Collects the exit codes of children that have ended, orphans included, up to the child `except_for`."""
    with suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid == except_for:
                return
            os.waitpid(ended.si_pid, 0)


def has_children() -> bool:
    """Collects the exit codes of children that have ended. Returns whether other children exist."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def mapped_shared_memory(pids: Iterable[int]) -> set[Path]:
    """Returns the POSIX shared memory files in /dev/shm that processes have mapped."""
    files: set[Path] = set()
    for pid in pids:
        with suppress(OSError):
            for line in (PROC / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
                # address perms offset device inode path, as in proc_pid_maps(5)
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(SHARED_MEMORY):
                    files.add(Path(fields[5]))
    return files


def remove_shared_memory(files: Iterable[Path], since_s: float) -> None:
    """Removes shared memory that killed processes couldn't remove, for example NCCL's between two ranks.

    Files that another process has mapped stay.

    Args:
        files: shared memory that the killed processes had mapped.
        since_s: Unix time in seconds at which the first of them started. Older files belong to other processes.
    """
    unused = {file for file in files if _newer(file, since_s)}
    if unused:
        unused -= mapped_shared_memory(running())
    for file in unused:
        with suppress(OSError):
            file.unlink()


def _newer(file: Path, since_s: float) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and status.st_mtime >= since_s - 1
