"""How steadily processors run: hosts whose cores something else takes part of launch kernels at half their pace,
and every rank waits for the slowest.

A virtual machine doesn't see who uses its cores' other hardware threads: no time is stolen, work merely takes
longer. A loop that always takes the same shows it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter, thread_time_ns

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine, counted

MOST_CORES = 4
SECONDS = 0.2
"""On each core."""
SLOW = 1.4
"""Times the quickest loop's time from which on a loop is slow: where cores were shared, loops took twice as long
as the quickest (results/2026-11-29-one-h200-host)."""
PART = 0.2
"""Of the loops that may be slow on a steady machine."""

_STEPS = 10_000


def probe(machine: Machine, times: Callable[[int], list[float]] | None = None) -> Iterator[Diagnostic]:
    """`times` gives the milliseconds of loops on a processor."""
    if not machine.live:
        return
    before = os.sched_getaffinity(0)
    allowed = sorted(before)
    chosen = allowed[:: -(-len(allowed) // MOST_CORES)]
    try:
        try:
            found = [(times or loops_ms)(core) for core in chosen]
        finally:
            os.sched_setaffinity(0, before)
    except OSError as error:
        yield diagnostic(
            "cores_steadiness_unknown",
            f"how steadily cores run is unknown: {error.strerror or error}",
        )
        return
    every = [ms for core in found for ms in core]
    best, middle = min(every), statistics.median(every)
    if best <= 0:
        yield diagnostic(
            "cores_steadiness_unknown",
            "how steadily cores run is unknown: threads' clock here is too coarse",
        )
        return
    what = f"a loop on {counted(len(chosen), 'core')} takes {best:.2f} ms at best, {middle:.2f} in the middle"
    slow = sum(ms > SLOW * best for ms in every) / len(every)
    if slow < PART:
        yield diagnostic(
            "cores_steady",
            f"{what}: steady",
        )
    elif all(sum(ms > SLOW * min(core) for ms in core) < PART * len(core) for core in found):
        slowest = max(min(core) for core in found)
        yield diagnostic(
            "cores_unequal",
            f"{what}, {slowest:.2f} at best on the slowest core: cores of unlike kinds, or some that were shared "
            "all the time",
        )
    else:
        yield diagnostic(
            "cores_disturbed",
            f"{what}, {slow:.0%} of the time more than {SLOW} times the best: something takes part of these "
            "cores, here or in a virtual machine beside this one, and GPUs that wait for their host are slower "
            "for it",
        )


def loops_ms(core: int) -> list[float]:
    """Of the thread's own time, so that being put aside for another process of this machine doesn't count."""
    os.sched_setaffinity(0, {core})
    found = []
    until = perf_counter() + SECONDS
    while not found or perf_counter() < until:
        start = thread_time_ns()
        for _ in range(_STEPS):
            pass
        found.append((thread_time_ns() - start) * 1e-6)
    return found
