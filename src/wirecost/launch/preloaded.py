"""Isolated processes that are forked from a server process, which has imported what they run.

`python -m wirecost.launch.preloaded FD PARENT MODULE OWNER` calls MODULE.preload(). It then forks a child for
every request that arrives over the socket FD. The child runs MODULE.main(arguments) isolated, as
`wirecost.launch.isolate` runs a command. The server ends with the process PARENT. OWNER only labels the server
for readers of `ps`. `preload` must not start threads, because forked children lack them.
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
"""Exit code of a child whose real one is unknown, because the child or the server was killed."""
MOST_REQUEST_BYTES = 1 << 16


class Preloaded(Closing):
    """The server process, from which children are forked. It starts immediately, and ends with the context.

    Args:
        module: the server calls its `preload()`, and the children run its `main(arguments) -> exit code`.
        owner: labels the server in lists of processes.
    """

    def __init__(self, module: str, owner: str) -> None:
        self.socket, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "wirecost.launch.preloaded",
                    str(server_end.fileno()), str(os.getpid()), module, owner,
                ],
                stdin=subprocess.DEVNULL,
                # With more threads, libraries start them on import. Ranks set their own number.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                # An error here is repeated in every child, which has a log.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[server_end.fileno()],
                # Ctrl-C reaches the caller alone, who then ends the server.
                start_new_session=True,
            )  # fmt: skip

    def run(self, arguments: Sequence[str], *, network: bool, output: IO[bytes]) -> IsolatedFork:
        """Starts a child in isolation.

        Args:
            arguments: passed to the module's `main`.
            network: whether the child gets namespaces.
            output: receives the child's stdout and stderr.
        """
        return IsolatedFork(self.socket, arguments, network=network, output=output)

    def runs(self) -> bool:
        """Returns whether the server can fork children, which means that it hasn't ended and isn't stopped."""
        state = process_state(self.process.pid) if self.process.poll() is None else None
        return state is not None and state.letter != STOPPED

    @property
    def pid(self) -> int:
        """Process ID of the server."""
        return self.process.pid

    def close(self) -> None:
        """Kills the server, also while it imports. Its children end by themselves."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


class IsolatedFork(Closing):
    """A child that `Preloaded.run` started. Its methods are those of `isolate.Isolated`."""

    def __init__(
        self, server: socket.socket, arguments: Sequence[str], *, network: bool, output: IO[bytes]
    ) -> None:
        lifeline, self._lifeline = os.pipe()
        self._result, result = os.pipe()
        self._text = b""
        self._ended = False
        try:
            # If the server has ended, no process holds `result`, and the exit code becomes EXIT_LOST.
            with contextlib.suppress(OSError):
                request = json.dumps({"arguments": list(arguments), "network": network}).encode()
                socket.send_fds(server, [request], [lifeline, result, output.fileno()])
        finally:
            os.close(lifeline)
            os.close(result)

    @property
    def pid(self) -> int | None:
        """Process ID of the ancestor of all processes of the child, or None before it has started."""
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
        """Waits for the child to end, and returns its exit code."""
        while (code := self.poll()) is None:
            self._receive(None)
        return code

    def _receive(self, timeout_s: float | None) -> None:
        """Reads what arrives within `timeout_s` seconds, or without a limit if it is None.

        The process ID arrives first and the exit code later, in a line each. The end of file follows.
        """
        if self._ended:
            return
        poller = select.poll()
        poller.register(self._result, select.POLLIN)
        if poller.poll(None if timeout_s is None else timeout_s * 1000):
            received = os.read(self._result, 64)
            self._text += received
            self._ended = not received

    def close(self) -> None:
        """Ends all processes of the child, and waits until they have ended.

        Raises:
            UnsupportedError: if a process hangs in the kernel and can't be killed.
        """
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline < 0:
            return
        os.close(lifeline)
        # The end of file arrives when the last process that holds the pipe has ended.
        deadline = time.monotonic() + CLOSE_S
        while not self._ended and (remaining_s := deadline - time.monotonic()) > 0:
            self._receive(remaining_s)
        try:
            if not self._ended and (root := self.pid) is not None:
                force_end(root)
        finally:
            os.close(self._result)
            self._ended = True


def main(argv: Sequence[str]) -> int:
    """Serves requests until the socket closes, and returns the exit code."""
    descriptor, parent, module, _owner = argv
    die_with_parent(int(parent))
    server = socket.socket(fileno=int(descriptor))
    server.set_inheritable(False)
    # A child that fails on the same import writes the error to its log.
    with contextlib.suppress(Exception):
        importlib.import_module(module).preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
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
    # The caller may have ended.
    with contextlib.suppress(BrokenPipeError):
        os.write(result, f"{code}\n".encode())
    end_with(lambda: code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
