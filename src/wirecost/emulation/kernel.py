"""The few Linux calls that Python 3.11 lacks: unshare, setns, and who may use them."""

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


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int = 0) -> None:
    """setns(2). Raises OSError."""
    _check(_libc.setns(fd, flags), "setns")


def mount_own_proc() -> None:
    """Gives this process and its children a /proc that shows their PID namespace, which CUDA needs to start.

    For the first process of a PID namespace, in a mount namespace of its own. Raises OSError: some containers
    forbid it.
    """
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _check(_libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount")


def mount_own_sys() -> None:
    """Gives this process, in a mount namespace of its own, a /sys of the network that it is in. Raises OSError."""
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount")


def enter_isolation() -> None:
    """Moves this single-threaded process into new network and mount namespaces, its children into a new PID
    namespace.

    As root directly; otherwise inside a new user namespace in which the caller is root.

    Raises:
        UnsupportedError: if the kernel, its settings or a container forbid it, with what to do.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        try:
            unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
            return
        except PermissionError:
            # Also root can lack the right, in a container; a user namespace may still be allowed.
            unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError as error:
        raise UnsupportedError(_why_not(error)) from error


def _why_not(error: OSError) -> str:
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
