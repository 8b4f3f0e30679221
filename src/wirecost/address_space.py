"""Limits on the address space of this process (`ulimit -v`), which batch systems and careful users set."""

from __future__ import annotations

import os
import resource

from wirecost.errors import UnsupportedError

LEAST_MIB = 320
"""Least address space with which numpy and scipy load. With less they hang, print messages or end the process."""
_MIB = 1 << 20


def limit_mib() -> int | None:
    """Returns the limit in MiB; None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def settle_in() -> None:
    """Sets up this process for its limit on address space, if it has one.

    Raises:
        UnsupportedError: if the limit is below `LEAST_MIB`.
    """
    limit = limit_mib()
    if limit is None:
        return
    if limit < LEAST_MIB:
        raise UnsupportedError(
            f"needs {LEAST_MIB} MiB of address space, which is limited to {limit} MiB (ulimit -v): raise the limit"
        )
    # numpy's linear algebra reserves memory for a thread on each core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def check_room_for_polars() -> None:
    """Checks that the limit leaves enough address space to import polars. Below that, polars aborts the process
    instead of raising an error: it reserves address space for one thread per core when it is imported (1.2 GiB on
    2 cores).

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
