"""Limits on the address space of this process (`ulimit -v`), which batch systems and careful users set."""

from __future__ import annotations

import os
import resource

from wirecost.errors import UnsupportedError
from wirecost.process_limits import check_threads

LEAST_MIB = 320
"""With less, numpy and scipy don't load: they hang, print lines of their own or end the process."""
_MIB = 1 << 20


def limit_mib() -> int | None:
    """Returns the limit in MiB; None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def settle_in() -> None:
    """Prepares this process for its limits.

    Raises:
        UnsupportedError: for a limit below `LEAST_MIB`.
    """
    # numpy's linear algebra starts a thread for each core when it is imported, and reserves memory for each. It
    # sends this process SIGINT if one can't be started. Ranks set their own number (OMP_NUM_THREADS).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    limit = limit_mib()
    if limit is None:
        return
    if limit < LEAST_MIB:
        raise UnsupportedError(
            f"needs {LEAST_MIB} MiB of address space, which is limited to {limit} MiB (ulimit -v): raise the limit"
        )


def check_room_for_polars() -> None:
    """Refuses limits under which the table library would abort the process instead of raising an error: it starts
    threads on each core when it is imported, and reserves address space for them (1.2 GiB on 2 cores).

    Raises:
        UnsupportedError
    """
    needed = 1536 + 64 * (os.cpu_count() or 1)
    limit = limit_mib()
    if limit is not None and limit < needed:
        raise UnsupportedError(
            f"Parquet and data frames take {needed} MiB of address space, and it is limited to {limit} MiB "
            "(ulimit -v): raise the limit, or use another format"
        )
    check_threads(2 * (os.cpu_count() or 1) + 2)
