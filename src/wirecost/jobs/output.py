"""Finds the reason of a failure in the last lines of a job's output."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

MOST_CHARACTERS = 300
"""Longest line of output that a reason quotes."""
_AGENT = re.compile(r"torch/distributed/elastic/multiprocessing/api\.py")
"""The first line that torchrun writes after a rank has failed."""
_BOX = "Root Cause (first observed failure):"
_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)")
_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d+) ")
_WORD = re.compile(r"\w")


def last_line(lines: Sequence[str]) -> str | None:
    """Returns the last line of output that has a letter or digit, without what torchrun adds about a failed rank.
    None without one.
    """
    agent = next((number for number, line in enumerate(lines) if _AGENT.search(line)), len(lines))
    for part in (lines[:agent], lines):
        for line in reversed(part):
            if _WORD.search(line):
                return line.strip()[:MOST_CHARACTERS]
    return None


def failed_rank(lines: Sequence[str]) -> str | None:
    """Returns which rank failed first and how, according to torchrun. None if it doesn't say so."""
    start = next((number for number, line in enumerate(lines) if line.strip() == _BOX), None)
    if start is None:
        return None
    rank = next((m[1] for line in lines[start:] if (m := _RANK.match(line))), None)
    code = next((int(m[1]) for line in lines[start:] if (m := _EXIT.match(line))), None)
    if rank is None or code is None:
        return None
    if code >= 0:
        return f"rank {rank} ended with exit code {code}"
    try:
        return f"rank {rank} was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"rank {rank} was killed by signal {-code}"
