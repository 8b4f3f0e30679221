"""Isolated processes that need not import what they run: each is forked from one that has.

`python -m wirecost.launch.preloaded FD PARENT MODULE FOR` calls MODULE.preload(), then forks a child for every
request that comes over the socket FD. The child runs MODULE.main(arguments) isolated, as `wirecost.launch.isolate`
runs a command. The process ends with process PARENT. FOR only tells a reader of `ps` whose it is. `preload` must
start no threads, which children would lack.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from typing import IO

from wirecost.closing import Closing
from wirecost.launch.forked import end_with
from wirecost.launch.isolate import CLOSE_S, force_end, run_isolated
from wirecost.launch.processes import die_with_parent, process_state
from wirecost.launch.stalls import STOPPED

EXIT_LOST = 1
"""Of a child whose exit code nobody could tell: it, or what it was forked from, was killed."""
MOST_REQUEST_BYTES = 1 << 16


class Preloaded(Closing):
    """The process that children are forked from, started at once; leaving the context ends it.

    Args:
        module: whose `preload()` it calls, and whose `main(arguments) -> exit code` the children run.
        whose: a word for those who look at the machine's processes.
    """

    def __init__(self, module: str, whose: str) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "wirecost.launch.preloaded",
                    str(theirs.fileno()), str(os.getpid()), module, whose,
                ],
                stdin=subprocess.DEVNULL,
                # With more, libraries start threads on import. Ranks set their own number.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                # What goes wrong here goes wrong again in every child, which has a log.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C belongs to the caller, who then ends us.
                start_new_session=True,
            )  # fmt: skip

    def run(self, arguments: Sequence[str], *, network: bool, output: IO[bytes]) -> IsolatedFork:
        """A child in isolation, started at once.

        Args:
            network: False leaves out the namespaces.
            output: where its stdout and stderr go.
        """
        return IsolatedFork(self.socket, arguments, network=network, output=output)

    def runs(self) -> bool:
        """Returns whether the process can fork children: it hasn't ended, and it isn't stopped."""
        state = process_state(self.process.pid) if self.process.poll() is None else None
        return state is not None and state.letter != STOPPED

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        """Ends the process, at once also while it imports. What was forked from it ends by itself."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


class IsolatedFork(Closing):
    """What `Preloaded.run` started; `isolate.Isolated`'s methods, but for the process."""

    def __init__(
        self, server: socket.socket, arguments: Sequence[str], *, network: bool, output: IO[bytes]
    ) -> None:
        lifeline, self._lifeline = os.pipe()
        self._result, result = os.pipe()
        self._text = b""
        self._ended = False
        try:
            # Where the server is gone, so is the last to hold `result`: the code is then EXIT_LOST.
            with contextlib.suppress(OSError):
                request = json.dumps({"arguments": list(arguments), "network": network}).encode()
                socket.send_fds(server, [request], [lifeline, result, output.fileno()])
        finally:
            os.close(lifeline)
            os.close(result)

    @property
    def pid(self) -> int | None:
        """Process ID of the process that everything of the child descends from; None before it has started."""
        self._receive(0)
        first, newline, _ = self._text.partition(b"\n")
        return int(first) if newline else None

    def poll(self) -> int | None:
        """Returns the exit code, or None while the child runs."""
        self._receive(0)
        lines = self._text.splitlines()
        if len(lines) == 2:
            return int(lines[1])
        return EXIT_LOST if self._ended else None

    def wait(self) -> int:
        """Returns the exit code once the child has ended."""
        while (code := self.poll()) is None:
            self._receive(None)
        return code

    def _receive(self, timeout_s: float | None) -> None:
        """Reads what comes within `timeout_s`: the process ID, later the exit code, a line each, and the end."""
        if self._ended:
            return
        poller = select.poll()
        poller.register(self._result, select.POLLIN)
        if poller.poll(None if timeout_s is None else timeout_s * 1000):
            received = os.read(self._result, 64)
            self._text += received
            self._ended = not received

    def close(self) -> None:
        """Ends everything, and returns when it is gone.

        Raises:
            UnsupportedError: if a process hangs in the kernel and can't be killed.
        """
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline < 0:
            return
        os.close(lifeline)
        # The end of file comes when the last process that could report is gone.
        end = time.monotonic() + CLOSE_S
        while not self._ended and (left_s := end - time.monotonic()) > 0:
            self._receive(left_s)
        try:
            if not self._ended and (root := self.pid) is not None:
                force_end(root)
        finally:
            os.close(self._result)
            self._ended = True


def main(argv: Sequence[str]) -> int:
    number, parent, module, _whose = argv
    die_with_parent(int(parent))
    server = socket.socket(fileno=int(number))
    server.set_inheritable(False)
    # A child that fails on the same import tells its log.
    with contextlib.suppress(Exception):
        importlib.import_module(module).preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, MOST_REQUEST_BYTES, 3)
        if not message:
            return 0
        if os.fork() == 0:
            server.close()
            _serve(module, message, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _serve(module: str, message: bytes, lifeline: int, result: int, output: int) -> None:
    """Runs a request in a child of this process, and writes its process ID and its exit code to `result`."""
    os.write(result, f"{os.getpid()}\n".encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    request = json.loads(message)

    def body() -> int:
        return importlib.import_module(module).main(request["arguments"])

    code = EXIT_LOST
    try:
        code = run_isolated(lifeline, body, network=request["network"], not_inside=lambda: os.close(result))
    except OSError:
        traceback.print_exc()
    # The caller may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(result, f"{code}\n".encode())
    end_with(lambda: code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
