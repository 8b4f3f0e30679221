"""Limits on the address space of this process (`ulimit -v`), which batch systems and careful users set."""

from __future__ import annotations

import os
import resource

from wirecost.errors import UnsupportedError
from wirecost.process_limits import check_threads

LEAST_MIB = 320
"""Least address space with which numpy and scipy load. With less they hang, print messages or end the process."""
_MIB = 1 << 20


def limit_mib() -> int | None:
    """Returns the limit in MiB; None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def settle_in() -> None:
    """Sets up this process for its limits.

    Raises:
        UnsupportedError: if the limit is below `LEAST_MIB`.
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
    """Checks that the limits leave enough address space and threads to import polars. Below that, polars aborts
    the process instead of raising an error: when it is imported it starts threads for each core and reserves
    address space for them (1.2 GiB on 2 cores).

    Raises:
        UnsupportedError: if the limit is too low.
    """
    needed = 1536 + 64 * (os.cpu_count() or 1)
    limit = limit_mib()
    if limit is not None and limit < needed:
        raise UnsupportedError(
            f"Parquet and data frames take {needed} MiB of address space, and it is limited to {limit} MiB "
            "(ulimit -v): raise the limit, or use another format"
        )
    check_threads(2 * (os.cpu_count() or 1) + 2)
