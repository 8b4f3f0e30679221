"""Receive packet steering, which keeps the packets of a connection in their order.

A shaper passes packets on from the core on which its timer runs, and the other end of a veth pair queues them
on the same core. Packets on two cores can overtake each other. TCP takes that for a loss, retransmits and slows
down. On a machine with 64 cores it retransmitted 0.5 to 2 % of all segments, although none was dropped. Receive
packet steering (Documentation/networking/scaling.rst of the kernel) assigns each connection to one core.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wirecost.emulation.kernel import CLONE_NEWNET, CLONE_NEWNS, mount_own_sys, setns, unshare

WORD_BITS = 32
FEW_CORES = 8
"""Number of cores up to which packets aren't steered.

On few cores packets seldom overtake each other, and waking another core for each packet costs more. On two
cores of a virtual machine, steering increased a round trip from 40 to 130 us, and a busy host slowed the link.
Without steering, 0.02 % of the segments were retransmitted at 1 Gb/s, and 0.15 % at 3 Gb/s.
"""


def cores_mask(cores: int) -> str:
    """Returns a mask of the first `cores` cores as the kernel reads it: 32-bit hexadecimal words, the highest
    first."""
    mask, words = (1 << cores) - 1, []
    while mask or not words:
        words.append(f"{mask & (1 << WORD_BITS) - 1:x}")
        mask >>= WORD_BITS
    return ",".join(reversed(words))


def steer(namespaces: Sequence[int]) -> bool:
    """Turns receive packet steering over all cores on for every interface of some network namespaces.

    Args:
        namespaces: file descriptors of network namespaces.

    Returns:
        Whether it succeeded. A container may forbid sysfs.
    """
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            _steer(namespaces, cores_mask(os.cpu_count() or 1))
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def _steer(namespaces: Sequence[int], mask: str) -> None:
    unshare(CLONE_NEWNS)
    for namespace in namespaces:
        # A sysfs shows the network namespace in which it was mounted.
        setns(namespace, CLONE_NEWNET)
        mount_own_sys()
        queues = list(Path("/sys/class/net").glob("*/queues/rx-*/rps_cpus"))
        if not queues:
            raise OSError("this kernel steers no packets")  # CONFIG_RPS
        for queue in queues:
            queue.write_text(mask)
