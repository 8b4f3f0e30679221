"""Lets one pod of a Kubernetes job start commands in the others.

A server in each pod runs the commands that it is sent (`wirecost.launch.remote_agent`), until it is told to end.
`python -m wirecost.launch.pods at HOST` sends one command to a pod, as `ssh HOST` does to a machine: its input
describes the command, and its output and exit code are the command's. Both know the token of the job, which
Kubernetes gives them as a Secret, and nobody else may send commands.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

PORT = 29400
TOKEN = "WIRECOST_POD_TOKEN"  # noqa: S105 - the name of the variable
END = b"end\n"
START = b"start\n"
START_S = 600.0
"""Time that another pod has to start."""
_MOST_BYTES = 1 << 16
_EXIT = re.compile(rb"\0exit (\d{1,3})\n\Z")


def token_of(environment: Mapping[str, str]) -> bytes:
    """Returns the token of the job.

    Raises:
        KeyError: if there is none, or an empty one.
    """
    if not environment.get(TOKEN):
        raise KeyError(TOKEN)
    return environment[TOKEN].encode()


class PodServer(socketserver.ThreadingTCPServer):
    """Runs the commands that other pods of the job send, each in a process of its own."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], token: bytes) -> None:
        super().__init__(address, _Session)
        self.token = token


class _Session(socketserver.StreamRequestHandler):
    """One connection: a line with the token, a line that says what to do, then the input of the agent."""

    rbufsize = 0  # the agent reads what follows itself

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, PodServer)
        given = self.rfile.readline(_MOST_BYTES).rstrip(b"\n")
        if not hmac.compare_digest(given, server.token):
            return
        if self.rfile.readline(_MOST_BYTES) != START:
            threading.Thread(target=server.shutdown).start()
            return
        command = [sys.executable, "-m", "wirecost.launch.remote_agent"]
        descriptor = self.connection.fileno()
        code = subprocess.run(
            command, stdin=descriptor, stdout=descriptor, stderr=descriptor, check=False
        ).returncode
        with suppress(OSError):
            self.connection.sendall(b"\0exit %d\n" % (code if code >= 0 else 128 - code))


def serve(port: int = PORT) -> PodServer:
    """Returns a server of this pod. The caller runs it."""
    return PodServer(("", port), token_of(os.environ))


def run_at(host: str, port: int = PORT, *, start_s: float = START_S) -> int:
    """Runs the command that the input of this process describes in another pod, and returns its exit code.

    Raises:
        OSError: if the pod can't be reached within `start_s` seconds.
    """
    with _connected(host, port, start_s) as connection:
        connection.sendall(token_of(os.environ) + b"\n" + START)

        def send() -> None:
            with suppress(OSError):
                while data := os.read(0, _MOST_BYTES):
                    connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        last = b""
        while data := connection.recv(_MOST_BYTES):
            last = (last + data)[-_MOST_BYTES:]
            os.write(1, _EXIT.sub(b"", data))
    match = _EXIT.search(last)
    if match is None:
        os.write(2, b"the pod " + host.encode() + b" ended the connection\n")
        return 1
    return int(match[1])


def end(host: str, port: int = PORT, *, start_s: float = 5.0) -> None:
    """Tells another pod's server to end. A pod that can't be reached is skipped."""
    with suppress(OSError), _connected(host, port, start_s) as connection:
        connection.sendall(token_of(os.environ) + b"\n" + END)


def _connected(host: str, port: int, start_s: float) -> socket.socket:
    deadline = time.monotonic() + start_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=10)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection


def main(arguments: Sequence[str]) -> int:
    """Runs the command of this module: `at HOST`. What follows it, the command of the agent, is known there."""
    if len(arguments) >= 2 and arguments[0] == "at":
        return run_at(arguments[1])
    sys.stderr.write("python -m wirecost.launch.pods at HOST\n")
    return 2


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # without waiting for a thread that still reads
