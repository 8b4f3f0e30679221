"""Times the lines of a command's output that end an iteration, for jobs that don't use PyTorch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wirecost.launch.processes import die_with_parent

LONGEST_LINE = 1 << 16
"""Number of bytes of a line that are matched. The rest of a longer line is copied only."""


class Lines:
    """Cuts output into lines. A line ends with a line feed, a carriage return as in progress bars, or both."""

    def __init__(self) -> None:
        self._line = b""
        self._returned = False

    def ended_by(self, output: bytes) -> list[bytes]:
        """Returns the lines that end in the next piece of output, each without its end. No output is the end of
        the last line.

        Only the first `LONGEST_LINE` bytes of a line are kept.
        """
        if not output:
            last, self._line = self._line, b""
            return [last] if last else []
        if self._returned and output.startswith(b"\n"):
            output = output[1:]
        self._returned = output.endswith(b"\r")
        *ended, rest = re.split(rb"\r\n|\r|\n", output)
        lines = []
        for line in ended:
            lines.append((self._line + line)[:LONGEST_LINE])
            self._line = b""
        self._line = (self._line + rest)[:LONGEST_LINE]
        return lines


def run_timed(
    command: Sequence[str], environment: Mapping[str, str], pattern: str, directory: Path, rank: int
) -> int:
    """Runs a command, copies its output to this process's, and records the time of every line that matches.

    The times are in `steps/lines-RANK.jsonl`, in the form of the hook's recording.

    Returns:
        The command's exit code, or 128 + N if signal N ended it.
    """
    regex = re.compile(pattern)
    parent = os.getpid()
    # The hook would record a second time.
    variables = {name: value for name, value in environment.items() if not name.startswith("WIRECOST_JOB")}
    folder = directory / "steps"
    folder.mkdir(exist_ok=True)
    try:
        process = subprocess.Popen(
            list(command),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    assert process.stdout is not None
    header = {
        "rank": rank,
        "world_size": int(environment.get("WORLD_SIZE", "1")),
        "launched_world_size": int(environment.get("WORLD_SIZE", "1")),
        "backend": None,
        "device": "unknown",
        "pid": process.pid,
        "host": os.uname().nodename,
        "torch": None,
    }
    with (folder / f"lines-{rank}.jsonl").open("w", buffering=1) as steps:
        steps.write(json.dumps(header) + "\n")
        ends = 0
        lines = Lines()
        while True:
            output = os.read(process.stdout.fileno(), LONGEST_LINE)
            now_ns = time.monotonic_ns()
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
            for line in lines.ended_by(output):
                if regex.search(line.decode(errors="replace")):
                    steps.write(json.dumps({"end": ends, "t_ns": now_ns}) + "\n")
                    ends += 1
            if not output:
                break
        code = process.wait()
        steps.write(json.dumps({"ended": "exit", "reason": None}) + "\n")
    return code if code >= 0 else 128 - code
