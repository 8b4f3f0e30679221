"""Cluster: GPUs, nodes and the links inside and between them, each value with its source."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from wirecost.spec.base import Spec
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.spec.plan import Precision
from wirecost.units import Rate, TimeS


class GPU(Spec):
    """One accelerator: datasheet figures. `peak_flops` dense, per precision, in FLOP/s."""

    name: str
    memory_bytes: PositiveInt
    memory_bandwidth_Bps: PositiveFloat
    peak_flops: dict[Precision, PositiveFloat]
    source: str


class Link(Spec):
    """A link's nominal rate per GPU (inside a node) or per NIC (between nodes), in one direction."""

    name: str
    rate: Rate
    latency: TimeS | None = None
    efficiency: float | None = Field(default=None, gt=0, le=1)
    source: str


class Cluster(Spec):
    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    gpu: GPU | str
    gpus_per_node: PositiveInt
    nodes: PositiveInt
    intra_node: Link
    inter_node: Link
    nics_per_node: PositiveInt = 1
    dollars_per_gpu_hour: NonNegativeFloat | None = None
    network_efficiency: NetworkEfficiency | None = None

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes
