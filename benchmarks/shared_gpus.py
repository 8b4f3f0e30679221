"""Lets more ranks than there are GPUs train over NCCL, several of them on one GPU.

Such ranks take turns on the GPU. What they compute and send is right; how long it takes means nothing.
"""

from __future__ import annotations

import os

import torch


def device_of(rank: int, ranks: int) -> torch.device:
    """Returns a rank's GPU, and sets NCCL's variables if ranks share one. Call it before the process group starts.

    NCCL refuses two ranks of one host on one GPU, so each rank gets a host of its own. They meet over the sockets
    of the loopback interface.
    """
    gpus = torch.cuda.device_count()
    if ranks > gpus:
        os.environ.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo")
    return torch.device("cuda", rank % gpus)
