"""Limits on open files, processes and threads (`ulimit -n`, `ulimit -u`, a container's pids.max)."""

from __future__ import annotations

import errno
import resource
import threading

from wirecost.errors import UnsupportedError

_NO_THREAD = "can't start new thread"
"""What Python says, in an error without a number."""
_BUSY = "Resource temporarily unavailable"
"""What the kernel says when it starts no further process or thread. Python has other words for a stream that would
block."""
_TOO_FEW_PROCESSES = (
    "no further process or thread can be started: raise the limit on them (ulimit -u; a container's pids.max)"
)


def explain(error: BaseException) -> str | None:
    """Returns one line that says which limit an error met and what to do; None for an error of another kind."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"too many open files: raise their limit (ulimit -n), which is {soft} here"
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD):
        return _TOO_FEW_PROCESSES
    if isinstance(error, OSError) and error.errno == errno.EAGAIN and error.strerror == _BUSY:
        return _TOO_FEW_PROCESSES
    # Libraries written in Rust end in this way, and quote the kernel. The class can't be imported.
    if type(error).__name__ == "PanicException" and _BUSY in str(error):
        return _TOO_FEW_PROCESSES
    return None


def raise_open_files(wanted: int, least: int) -> None:
    """Raises this process's limit on open files as far as it may, for itself and the processes that it starts.

    Args:
        wanted: number of files up to which the limit is raised.
        least: number without which nothing can be started.

    Raises:
        UnsupportedError: if the limit stays below `least`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if limit > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
        if soft < least:
            raise UnsupportedError(
                f"at most {soft} files may be open here, and at least {least} are needed: raise their limit "
                "(ulimit -n)"
            )


def check_threads(count: int) -> None:
    """Refuses limits under which `count` threads can't run at once.

    Raises:
        UnsupportedError
    """
    done = threading.Event()
    threads = [threading.Thread(target=done.wait, daemon=True) for _ in range(count)]
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise UnsupportedError(_TOO_FEW_PROCESSES) from error
    finally:
        done.set()
        for thread in started:
            thread.join()
