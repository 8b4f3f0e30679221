"""Runs a command in isolation, so that it leaves nothing behind.

The command line is `python -m wirecost.launch.isolate FD MODE -- COMMAND...`.

The command runs under an init process, which holds the read end of a pipe. Only the caller holds the write end.
When the caller ends, also by SIGKILL, the pipe closes and the init process ends all processes of the command.

With namespaces, the init process is PID 1 of a PID namespace and has its own network namespace. When it ends,
the kernel kills every process of the namespace, and removes the namespaces and links, because they have no
names. Without namespaces, the init process is a subreaper. Orphans of the command become its children, and it
kills its descendants until none is left. In both cases, shared memory that killed processes had mapped is
removed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from wirecost.closing import Closing
from wirecost.emulation.kernel import enter_isolation, mount_own_proc
from wirecost.errors import UnsupportedError
from wirecost.launch.forked import end_with
from wirecost.launch.processes import (
    END_S,
    POLL_S,
    become_subreaper,
    descendants,
    die_with_parent,
    end_descendants,
    end_tree,
    has_children,
    mapped_shared_memory,
    reap,
    remove_shared_memory,
)

EXIT_REFUSED = 120
"""Exit code if the machine refuses isolation. The reason is the last line on stderr."""
CLOSE_S = END_S + 3.0
"""Time in seconds that the init process has to end all processes, before the caller ends them itself."""


class Isolated(Closing):
    """A command in isolation, which starts immediately. Leaving the context kills all its processes that still
    run.

    Args:
        argv: the command.
        network: whether the command gets namespaces.
        output: receives the command's stdout and stderr.
        cwd: the command's working directory.
    """

    def __init__(self, argv: Sequence[str], *, network: bool, output: IO[bytes], cwd: Path | None = None) -> None:
        read_end, self._lifeline = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "wirecost.launch.isolate", str(read_end),
                    "netns" if network else "plain", "--", *argv,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[read_end],
                cwd=cwd,
                # Ctrl-C reaches the caller alone, who then ends the command. Otherwise all of its processes would
                # print tracebacks.
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(read_end)

    def poll(self) -> int | None:
        """Returns the exit code, or None while the command runs."""
        return self.process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the command to end, and returns its exit code.

        Raises:
            subprocess.TimeoutExpired: if the command runs for longer than `timeout_s`.
        """
        return self.process.wait(timeout_s)

    @property
    def pid(self) -> int:
        """Process ID of the ancestor of all processes of the command."""
        return self.process.pid

    def close(self) -> None:
        """Ends all processes of the command, and waits until they have ended.

        Raises:
            UnsupportedError: if a process hangs in the kernel and can't be killed.
        """
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            # The init process is stopped, or can't end its descendants.
            force_end(self.process.pid)
            self.process.wait()


def force_end(root: int) -> None:
    """Kills a process and its descendants.

    Raises:
        UnsupportedError: if one of them hangs in the kernel.
    """
    if remaining := end_tree(root):
        raise UnsupportedError(
            f"process {remaining[0]} can't be killed: it hangs in the kernel (a driver or a disk); when that is "
            "repaired or the machine is restarted, go on with --resume: finished experiments are kept"
        )


def main(argv: Sequence[str]) -> int:
    """Runs the command of this module's command line, and returns its exit code."""
    lifeline, mode, separator, *command = argv
    assert separator == "--"
    return run_isolated(int(lifeline), lambda: _become(command), network=mode == "netns")


def run_isolated(
    lifeline: int, body: Callable[[], int], *, network: bool, not_inside: Callable[[], object] = lambda: None
) -> int:
    """Runs `body` isolated in a child until it or the lifeline ends. The calling process must be single-threaded.

    Args:
        lifeline: the read end of a pipe. When its write end closes, `body` is killed.
        body: returns the exit code.
        network: whether `body` gets namespaces.
        not_inside: called first in the child, to close descriptors that only this process may hold.

    Returns:
        The exit code of `body`, 128 + N if signal N ended it, 0 if the lifeline ended first, or `EXIT_REFUSED`.
    """
    if network:
        try:
            enter_isolation()
        except UnsupportedError as error:
            print(error, file=sys.stderr, flush=True)
            return EXIT_REFUSED
    starter = os.pidfd_open(os.getpid())
    init = os.fork()
    if init == 0:
        not_inside()
        os._exit(_lead_namespace(lifeline, starter, body) if network else _lead_tree(lifeline, starter, body))
    os.close(starter)
    _ignore_signals()
    _, status = os.waitpid(init, 0)
    return os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else 128 + os.WTERMSIG(status)


def _ignore_signals() -> None:
    """Ignores signals that Slurm, for example, sends to all processes of a job step. The lifeline decides the
    end."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _become(command: Sequence[str]) -> int:
    """Replaces this process by a command. Returns 127 if the command can't be run."""
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the caller's own command
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127


def _lead_namespace(lifeline: int, starter: int, body: Callable[[], int]) -> int:
    """Runs `body` as PID 1 of a namespace, and then ends all processes of the namespace. Returns its exit code."""
    since_s = time.time()
    own_proc = True
    try:
        mount_own_proc()
    except OSError:  # some containers forbid it; only CUDA needs it, and reports the error itself
        own_proc = False
    code = _run(lifeline, starter, body)
    # A /proc of another PID namespace shows other processes.
    files = mapped_shared_memory(descendants(os.getpid())) if own_proc else set()
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # every process of the namespace but this one
    deadline = time.monotonic() + END_S
    while has_children() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    remove_shared_memory(files, since_s)
    return code


def _lead_tree(lifeline: int, starter: int, body: Callable[[], int]) -> int:
    """Runs `body` without namespaces, and then ends all its descendants. Returns its exit code."""
    since_s = time.time()
    become_subreaper()
    code = _run(lifeline, starter, body)
    files = mapped_shared_memory(descendants(os.getpid()))
    end_descendants()
    remove_shared_memory(files, since_s)
    return code


def _run(lifeline: int, starter: int, body: Callable[[], int]) -> int:
    """Runs `body` in a child until it, the lifeline or the starter ends.

    Args:
        lifeline: the read end of a pipe.
        starter: pidfd of the process that started this one.
        body: returns the exit code.

    Returns:
        The exit code of `body`, 128 + N if signal N ended it, or 0 if the lifeline or the starter ended first.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(starter)
        os.set_inheritable(lifeline, False)
        die_with_parent(parent)
        end_with(body)
    _ignore_signals()
    return _await_end(child, lifeline, starter)


def _await_end(child: int, lifeline: int, starter: int) -> int:
    """Returns the child's exit code (128 + N after signal N), or 0 if the lifeline or the starter ended first."""
    child_fd = os.pidfd_open(child)
    poller = select.poll()
    for descriptor in (child_fd, lifeline, starter):
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if child_fd in ready:
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if starter in ready or (lifeline in ready and not os.read(lifeline, 1)):
            return 0
        reap(except_for=child)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
