"""Isolated processes that need not import what they run: each is forked from one that has.

`python -m wirecost.fabric.preloaded FD MODULE FOR` calls MODULE.preload(), then forks a child for every request
that comes over the socket FD; the child runs MODULE.main(arguments) isolated, as `wirecost.fabric.isolate` runs a
command. FOR only tells a reader of `ps` whose it is. `preload` must start no threads, which children would lack.
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
import traceback
from collections.abc import Sequence
from typing import IO

from wirecost.fabric.closing import Closing
from wirecost.fabric.forked import end_with
from wirecost.fabric.isolate import run_isolated

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
                [sys.executable, "-m", "wirecost.fabric.preloaded", str(theirs.fileno()), module, whose],
                stdin=subprocess.DEVNULL,
                # With more, libraries start threads on import. Ranks set their own number.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                # What goes wrong here goes wrong again in every child, which has a log.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C belongs to the caller, who then ends us.
                start_new_session=True,
            )

    def run(self, arguments: Sequence[str], *, network: bool, output: IO[bytes]) -> IsolatedFork:
        """A child in isolation, started at once.

        Args:
            network: False leaves out the namespaces.
            output: where its stdout and stderr go.
        """
        return IsolatedFork(self.socket, arguments, network=network, output=output)

    def runs(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.socket.close()
        self.process.wait()


class IsolatedFork(Closing):
    """What `Preloaded.run` started; `isolate.Isolated`'s methods, but for the process."""

    def __init__(
        self, server: socket.socket, arguments: Sequence[str], *, network: bool, output: IO[bytes]
    ) -> None:
        lifeline, self._lifeline = os.pipe()
        self._result, result = os.pipe()
        self._code: int | None = None
        try:
            # Where the server is gone, so is the last to hold `result`: the code is then EXIT_LOST.
            with contextlib.suppress(OSError):
                request = json.dumps({"arguments": list(arguments), "network": network}).encode()
                socket.send_fds(server, [request], [lifeline, result, output.fileno()])
        finally:
            os.close(lifeline)
            os.close(result)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._read(0)

    def wait(self) -> int:
        code = None
        while code is None:
            code = self._read(None)
        return code

    def _read(self, timeout_ms: int | None) -> int | None:
        if self._code is None:
            poller = select.poll()
            poller.register(self._result, select.POLLIN)
            if not poller.poll(timeout_ms):
                return None
            told = os.read(self._result, 16)
            self._code = int(told) if told else EXIT_LOST
        return self._code

    def close(self) -> None:
        """Ends everything; returns when it is gone."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline < 0:
            return
        os.close(lifeline)
        # The end of file comes when the last process that could tell is gone.
        while os.read(self._result, 16):
            pass
        os.close(self._result)


def main(argv: Sequence[str]) -> int:
    number, module, _whose = argv
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
    """The life of a child that waits for what it runs, and tells its exit code."""
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
    os.write(result, str(code).encode())
    end_with(lambda: code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
