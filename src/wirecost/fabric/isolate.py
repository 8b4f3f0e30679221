"""Runs a command so that nothing of it can stay behind: `python -m wirecost.fabric.isolate FD MODE -- COMMAND...`.

The command runs under an init of a PID namespace of its own, in a network namespace of its own. The init
holds the read end of a pipe whose write end only the caller has: however the caller dies, SIGKILL included,
the pipe closes, the init ends, and the kernel kills every process in the namespace; namespaces and links,
which have no names, go with them. There is nothing to sweep.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from wirecost.errors import UnsupportedError
from wirecost.fabric.closing import Closing
from wirecost.fabric.forked import end_with
from wirecost.fabric.kernel import enter_isolation, mount_own_proc

EXIT_REFUSED = 120
"""The isolation could not be had; the reason is the last line on stderr."""


class Isolated(Closing):
    """A command in isolation, started at once; leaving the context kills whatever still runs of it.

    Args:
        argv: the command.
        network: False leaves out the namespaces (the command then cleans up after itself).
        output: where its stdout and stderr go.
    """

    def __init__(self, argv: Sequence[str], *, network: bool, output: IO[bytes], cwd: Path | None = None) -> None:
        read_end, self._lifeline = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "wirecost.fabric.isolate", str(read_end),
                    "netns" if network else "plain", "--", *argv,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[read_end],
                cwd=cwd,
                # Ctrl-C belongs to the caller, who then ends us; our processes would only print tracebacks.
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(read_end)

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """Ends everything; returns when it is gone."""
        with suppress(OSError):
            os.close(self._lifeline)
        self.process.wait()


def main(argv: Sequence[str]) -> int:
    lifeline, mode, separator, *command = argv
    assert separator == "--"
    return run_isolated(int(lifeline), lambda: _become(command), network=mode == "netns")


def run_isolated(
    lifeline: int, body: Callable[[], int], *, network: bool, not_inside: Callable[[], object] = lambda: None
) -> int:
    """Runs `body` in a child, isolated, to its end or the lifeline's; returns its code (128 + N after signal N).

    To be called by a single-threaded process.

    Args:
        lifeline: the read end of a pipe.
        network: False leaves out the namespaces.
        not_inside: called in the child first, to close what only this process may hold.
    """
    if network:
        try:
            enter_isolation()
        except UnsupportedError as error:
            print(error, file=sys.stderr, flush=True)
            return EXIT_REFUSED
    init = os.fork()
    if init == 0:
        not_inside()
        if network:
            with suppress(OSError):  # only CUDA needs it, and says so itself
                mount_own_proc()
        os._exit(_init(lifeline, body))
    _, status = os.waitpid(init, 0)
    return os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else 128 + os.WTERMSIG(status)


def _become(command: Sequence[str]) -> int:
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the caller's own command
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127


def _init(lifeline: int, body: Callable[[], int]) -> int:
    """PID 1 of the namespace: ends, and everything with it, when the body or the lifeline does."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.set_inheritable(lifeline, False)
        end_with(body)
    poller = select.poll()
    child_fd = os.pidfd_open(child)
    poller.register(child_fd, select.POLLIN)
    poller.register(lifeline, select.POLLIN | select.POLLHUP)
    while True:
        for fd, _ in poller.poll():
            if fd == child_fd:
                _, status = os.waitpid(child, 0)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if not os.read(lifeline, 1):
                # Without a PID namespace nobody else would kill the command's process group.
                with suppress(ProcessLookupError):
                    os.killpg(child, 9)
                return 0
        _reap(except_for=child)


def _reap(*, except_for: int) -> None:
    """Orphans fall to an init."""
    with suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == except_for:
                return
            os.waitpid(found.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
