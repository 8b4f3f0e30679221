"""Child processes that are forked from this one, so that they needn't repeat its imports."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, NoReturn

from wirecost.launch.processes import die_with_parent

POLL_S = 0.01


class Forked:
    """A forked child that runs a function, with the methods of `subprocess.Popen`. It ends with its parent.

    This process must not have started threads, because a forked child lacks them.

    Args:
        body: the function. The child ends with the exit code that it returns.
        environment: all environment variables of the child.
        output: receives the child's stdout and stderr.
        before: called in the child before its output is redirected.
    """

    def __init__(
        self,
        body: Callable[[], int],
        environment: Mapping[str, str],
        output: IO[bytes],
        before: Callable[[], object] | None = None,
    ) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return

        def redirected() -> int:
            die_with_parent(parent)
            if before:
                before()
            with open(os.devnull, "rb") as null_device:  # noqa: PTH123 - dup2 needs a descriptor
                os.dup2(null_device.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.clear()
            os.environ.update(environment)
            return body()

        end_with(redirected)

    def poll(self) -> int | None:
        """Returns the exit code, -N after signal N, or None while the child runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        """Waits for the child to end, and returns its exit code as `poll` does."""
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal to the child, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the child, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def end_with(body: Callable[[], int]) -> NoReturn:
    """Ends this process, a forked child, with the exit code that `body` returns.

    If `body` raises, the traceback is printed and the exit code is 1.
    """
    code = 1
    try:
        code = body()
    except SystemExit as exit_request:
        code = exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
    except BaseException:  # noqa: BLE001 - the child must not continue in the parent's code
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
