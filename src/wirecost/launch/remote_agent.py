"""Runs one command on the machine that it is started on: `python -m wirecost.launch.remote_agent`.

It reads the command as a line of JSON from its input, so that nothing has to survive a remote shell's quoting:

    {"command": ["torchrun", "..."], "environment": {"GLOO_SOCKET_IFNAME": "eth0"}}

It first prints the line `STARTED`. All processes of the command are killed when the input ends. The input ends
with the process on the other side, however that ends, so that nothing stays on a machine that is only reached
through a connection.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import BinaryIO

from wirecost.launch.processes import become_subreaper, descendants, end_descendants, kill

MOST_BYTES = 1 << 20
STARTED = "wirecost: the agent has started"
"""Line of output by which the caller knows that the machine could be reached."""


def run(source: BinaryIO) -> int:
    """Runs the command that `source` describes, and returns its exit code; 128 + N if signal N ended it.

    Raises:
        ValueError: if the first line describes no command.
    """
    print(STARTED, file=sys.stderr, flush=True)
    job = json.loads(source.readline(MOST_BYTES))
    command, environment = job["command"], job["environment"]
    become_subreaper()
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)

    def end_with_input() -> None:
        with suppress(OSError, ValueError):
            while source.read(1):
                pass
        kill(descendants(os.getpid()))

    threading.Thread(target=end_with_input, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: kill(descendants(os.getpid())))
    code = process.wait()
    end_descendants()  # a launcher that was killed leaves its ranks
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Without the interpreter's shutdown, which can't end a thread that still reads.
    os._exit(run(sys.stdin.buffer))
