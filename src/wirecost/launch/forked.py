"""A child process that goes on from this one: what has been imported here need not be imported in each child."""

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
    """Runs `body` in a forked child and ends it with the exit code that `body` returns. The child ends with its
    parent.

    To be used before this process has threads that the child would miss. Its methods are subprocess.Popen's.

    Args:
        environment: the child's, whole.
        output: where its stdout and stderr go.
        first: called in the child before its output is redirected or anything else is done.
    """

    def __init__(
        self,
        body: Callable[[], int],
        environment: Mapping[str, str],
        output: IO[bytes],
        first: Callable[[], object] | None = None,
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
            if first:
                first()
            with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is what is wanted
                os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.clear()
            os.environ.update(environment)
            return body()

        end_with(redirected)

    def poll(self) -> int | None:
        """The exit code, -N after signal N, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def end_with(body: Callable[[], int]) -> NoReturn:
    """Ends this process, a forked child, with the code that `body` returns; 1 and a traceback if it raises."""
    code = 1
    try:
        code = body()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - nothing of the child may go on in the parent's code
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
