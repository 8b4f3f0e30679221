"""Cluster: GPUs, nodes and the links inside and between them, each value with its source."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from wirecost.errors import one_of
from wirecost.spec.base import Spec
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.spec.plan import MatrixPrecision
from wirecost.spec.presets import named, names
from wirecost.units import Rate, TimeS


def _link(value: Any) -> Any:
    return named("link", value)


class GPU(Spec):
    """One accelerator (or the processor that ranks train on): datasheet figures, and what of them is reached.

    `peak_flops` is dense, per number format, in FLOP/s. `matrix_efficiency` is the share of the peak that large
    matrix products reach, `matrix_traffic` how many times a product's operands and result cross the memory at
    `memory_bandwidth_Bps` on top of that (small and thin products are slower), and `memory_efficiency` the share
    of the memory bandwidth that element-wise kernels reach. `power_throttle` is how much longer products take
    where nothing but products runs, since clocks fall at the power limit; `attention_efficiency` is how fused
    attention kernels do on this GPU relative to an A100 (the first to have them tuned). These are calibrated
    (`wirecost calibrate`).
    """

    name: str
    aliases: tuple[str, ...] = ()
    architecture: Literal["volta", "ampere", "hopper", "blackwell", "cdna3", "cpu"]
    memory_bytes: PositiveInt
    memory_bandwidth_Bps: PositiveFloat
    peak_flops: dict[MatrixPrecision, PositiveFloat]
    matrix_efficiency: float = Field(default=0.75, gt=0, le=1)
    matrix_traffic: float = Field(default=0.5, ge=0, le=20)
    memory_efficiency: float = Field(default=0.85, gt=0, le=1)
    power_throttle: float = Field(default=0.0, ge=0, le=1)
    attention_efficiency: float = Field(default=1.0, gt=0, le=2)
    source: str
    calibration: str | None = None


class Link(Spec):
    """A link's nominal rate per GPU (inside a node) or per NIC (between nodes), in one direction; `interface_rate`
    where the interface states another one, which NCCL then goes by (a veth pair states 10 Gb/s).

    `efficiency` is the share of the nominal rate that large messages reach, `latency` a collective's fixed cost,
    `latency_per_step` what each further rank on a ring (or level of a tree) adds, and `half_rate` the message
    size whose time is twice that at full rate. `shared_efficiency` is what is left of a node's rate where several
    rings that each hold several of its GPUs cross the same NICs. Unset values are those of
    `wirecost.model.collectives`.
    """

    name: str
    rate: Rate
    interface_rate: Rate | None = None
    latency: TimeS | None = None
    latency_per_step: TimeS | None = None
    efficiency: float | None = Field(default=None, gt=0, le=1)
    half_rate_bytes: NonNegativeFloat | None = None
    shared_efficiency: float | None = Field(default=None, gt=0, le=1)
    source: str
    calibration: str | None = None


class Cores(Spec):
    """Processor cores that ranks compute on, and share.

    The device's figures are those of one rank with `threads` threads. `shared_by` says which ranks share the
    `count` cores: those of a node, or `all` where hosts are emulated on one machine. `serial` is the share of a
    rank's compute that more threads don't speed up (Amdahl 1967, doi 10.1145/1465482.1465560).
    """

    count: PositiveInt
    threads: PositiveInt
    shared_by: Literal["node", "all"] = "node"
    serial: float = Field(default=0.2, ge=0, le=1)
    source: str


class Cluster(Spec):
    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    gpu: GPU | str
    gpus_per_node: PositiveInt
    nodes: PositiveInt
    intra_node: Annotated[Link, BeforeValidator(_link)]
    inter_node: Annotated[Link, BeforeValidator(_link)]
    nics_per_node: PositiveInt = 1
    cores: Cores | None = None
    dollars_per_gpu_hour: NonNegativeFloat | None = None
    network_efficiency: NetworkEfficiency | None = None
    source: str | None = None

    @model_validator(mode="after")
    def _gpu_exists(self) -> Cluster:
        if isinstance(self.gpu, str):
            gpu(self.gpu)
        return self

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes

    @property
    def accelerator(self) -> GPU:
        """The GPU's data, looked up where `gpu` is a name."""
        return gpu(self.gpu) if isinstance(self.gpu, str) else self.gpu

    @property
    def node_rate_Bps(self) -> float:
        """What all NICs of one node carry together, in one direction, at their nominal rate."""
        return self.inter_node.rate * self.nics_per_node / 8


@lru_cache
def gpu(name: str) -> GPU:
    """A GPU preset by name or alias, whatever the case.

    Raises:
        ValueError: for an unknown one, with those that are there.
    """
    wanted = name.strip().lower()
    for known in names("gpu"):
        if wanted == known.lower():
            return GPU.model_validate(named("gpu", known))
    for known in names("gpu"):
        candidate = GPU.model_validate(named("gpu", known))
        if wanted in (alias.lower() for alias in candidate.aliases):
            return candidate
    raise ValueError(one_of("gpu", name, names("gpu")))
