"""Networks between hosts, which exist natively or are emulated by shaping links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from wirecost.spec.base import Spec
from wirecost.units import BitsPerSecond, Rate, TimeS, format_rate_bps

MIN_RATE_BPS = 64e3
"""Lowest emulated rate. At lower rates the shaper's smallest bucket (64 KiB) lasts longer than eight seconds,
in which nothing is shaped."""


class Emulation(Spec):
    """The link of every emulated host.

    Attributes:
        rate: rate in each direction. None is the speed of the machine.
        delay: one-way delay, which needs the kernel's netem.
        socket_threads: number of threads with which NCCL serves the sockets between two hosts
            (NCCL_SOCKET_NTHREADS).
        sockets_per_thread: number of sockets of each of these threads (NCCL_NSOCKS_PERTHREAD). One connection is
            too slow for a fast network.
    """

    rate: Rate | None = None
    delay: TimeS | None = None
    socket_threads: PositiveInt = 4
    sockets_per_thread: PositiveInt = 4

    @field_validator("rate")
    @classmethod
    def _can_be_measured(cls, rate: BitsPerSecond | None) -> BitsPerSecond | None:
        if rate is not None and rate < MIN_RATE_BPS:
            raise ValueError(
                f"{format_rate_bps(rate)} is too slow for an emulated link; "
                f"at least {format_rate_bps(MIN_RATE_BPS)}"
            )
        return rate


class Native(Spec):
    """A native network: the interface and the environment variables that make NCCL or gloo use it.

    Attributes:
        interface: name of the network interface, like `eth2`.
        environment: environment variables of every rank, like `NCCL_NET: IB`.
    """

    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,14}$")
    environment: dict[str, str] = {}


class Network(Spec):
    """A network.

    Attributes:
        name: name of the network in tables and directories.
        description: free text for reports.
        emulate: links of emulated hosts, which are used on one machine.
        native: real network, which is used on a cluster.
        inside: whether the network is inside one host (NVLink, shared memory). All ranks are then on one host.
        transport: the transport that NCCL must report with the native form. A run with another one reports that.
    """

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    emulate: Emulation | None = None
    native: Native | None = None
    inside: bool = False
    transport: Literal["rdma-gdr", "rdma", "tcp", "ipoib", "efa", "shm", "p2p"] | None = None

    @model_validator(mode="after")
    def _can_be_had(self) -> Network:
        if self.emulate is None and self.native is None:
            raise ValueError("a network needs 'emulate' or 'native'")
        if self.inside and self.emulate is not None:
            raise ValueError("a network inside a host ('inside') is never emulated: leave 'emulate' out")
        return self
