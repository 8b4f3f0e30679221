"""Linux system calls that Python 3.11 lacks (unshare, setns, mount), and isolation in namespaces."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from wirecost.errors import UnsupportedError

# include/uapi/linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# include/uapi/linux/mount.h
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Moves the calling thread to new namespaces of the kinds in `flags` (unshare(2)).

    Raises:
        OSError: if the kernel refuses.
    """
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int = 0) -> None:
    """Moves the calling thread to the namespace of a file descriptor (setns(2)).

    Raises:
        OSError: if the kernel refuses.
    """
    _check(_libc.setns(fd, flags), "setns")


def mount_own_proc() -> None:
    """Mounts a /proc that shows the PID namespace of this process. CUDA needs it to start.

    The first process of a PID namespace calls it, in a mount namespace of its own.

    Raises:
        OSError: if the kernel refuses, as in some containers.
    """
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _check(_libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount")


def mount_own_sys() -> None:
    """Mounts a /sys that shows the network namespace of this process, which has a mount namespace of its own.

    Raises:
        OSError: if the kernel refuses.
    """
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount")


def enter_isolation() -> None:
    """Moves this single-threaded process to new network and mount namespaces, and its children to a new PID
    namespace.

    Root creates them directly. Other users create them inside a new user namespace in which they are root.

    Raises:
        UnsupportedError: if the kernel, its settings or a container forbid it. The message says what to do.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        try:
            unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
            return
        except PermissionError:
            # In a container, root may lack the right too, while a user namespace may be allowed.
            unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError as error:
        raise UnsupportedError(_refusal(error)) from error


def _refusal(error: OSError) -> str:
    """Returns a message that says why the kernel refused namespaces, and what to do."""
    start = f"emulated hosts need network namespaces, which this machine refuses ({error.strerror})"
    sysctls = {
        "kernel.apparmor_restrict_unprivileged_userns": "1",
        "kernel.unprivileged_userns_clone": "0",
        "user.max_user_namespaces": "0",
    }
    for name, forbidding in sysctls.items():
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.exists() and path.read_text().strip() == forbidding:
            allowing = {"1": "0", "0": "1"}[forbidding] if "max" not in name else "10000"
            return f"{start}; run as root, or allow user namespaces: sysctl -w {name}={allowing}"
    if error.errno == errno.ENOSPC:
        return f"{start}; too many namespaces: raise user.max_net_namespaces and user.max_pid_namespaces"
    if os.geteuid() == 0:
        return f"{start}; in a container, start it with --privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
    return f"{start}; run as root, or on a kernel with CONFIG_USER_NS"
