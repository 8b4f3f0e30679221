"""Ranks that are forked from a process that has loaded PyTorch once for all of them."""

from __future__ import annotations

import os
import signal
import sys

from wirecost.launch.processes import die_with_parent


def become_ranks(ranks: int) -> int:
    """Forks this process into rank 0 to n-1, and returns the rank. The process that was before ends when they do, as
    the first that failed."""
    children = {}
    parent = os.getpid()
    for rank in range(ranks):
        if not (child := os.fork()):
            # No rank outlives the process that the test may kill.
            die_with_parent(parent)
            return rank
        children[child] = rank
    while children:
        child, status = os.wait()
        if status:
            sys.stderr.write(f"rank {children[child]} ended with {os.waitstatus_to_exitcode(status)}\n")
            for other in children.keys() - {child}:
                os.kill(other, signal.SIGKILL)
            os._exit(1)
        del children[child]
    os._exit(0)
