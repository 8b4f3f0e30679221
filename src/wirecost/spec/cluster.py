"""Clusters: GPUs, nodes, and the links inside and between nodes, each with its source."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from wirecost.errors import one_of
from wirecost.spec.base import Spec
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.spec.plan import MatrixPrecision
from wirecost.spec.presets import named, names
from wirecost.spec.provenance import Sourced
from wirecost.units import Rate, TimeS


def _link(value: Any) -> Any:
    return named("link", value)


class GPU(Sourced):
    """An accelerator, or the CPU that ranks train on: values of its datasheet, and calibrated efficiencies.

    `wirecost calibrate` determines the values from `matrix_efficiency` to `attention_efficiency`.

    Attributes:
        name: name of the GPU.
        aliases: other names under which tables list the GPU.
        architecture: generation of the GPU, which decides the default links and stack.
        memory_bytes: size of the memory in bytes.
        memory_bandwidth_Bps: bandwidth of the memory in bytes/s.
        peak_flops: dense peak in FLOP/s for each number format.
        matrix_efficiency: fraction of the peak that large matrix products reach.
        matrix_traffic: how many times the operands and the result of a product cross the memory, in addition to
            the time at the peak. It makes small and thin products slower.
        memory_efficiency: fraction of the memory bandwidth that element-wise kernels reach.
        power_throttle: fraction by which products take longer if nothing else runs, because clocks fall at the
            power limit.
        attention_efficiency: efficiency of fused attention kernels relative to that on an A100, for which they
            were tuned first.
        source: where the values of the datasheet are from.
        calibration: what the efficiencies were fitted to. None is nothing.
    """

    aliases: tuple[str, ...] = ()
    architecture: Literal["volta", "ampere", "hopper", "blackwell", "cdna2", "cdna3", "cdna4", "gaudi", "cpu"]
    memory_bytes: PositiveInt
    memory_bandwidth_Bps: PositiveFloat
    peak_flops: dict[MatrixPrecision, PositiveFloat]
    matrix_efficiency: float = Field(default=0.75, gt=0, le=1)
    matrix_traffic: float = Field(default=0.5, ge=0, le=20)
    memory_efficiency: float = Field(default=0.85, gt=0, le=1)
    power_throttle: float = Field(default=0.0, ge=0, le=1)
    attention_efficiency: float = Field(default=1.0, gt=0, le=2)


class Link(Sourced):
    """A link inside a node or between nodes. Unset values are those of `wirecost.costmodel.collectives`.

    Attributes:
        name: name of the link.
        rate: nominal rate in one direction, per GPU inside a node and per NIC between nodes.
        interface_rate: the rate that the interface reports, if it differs. NCCL uses this one. A veth pair reports
            10 Gb/s.
        latency: fixed time of a collective.
        latency_per_step: time for each further rank on a ring, or each level of a tree.
        efficiency: fraction of the nominal rate that large messages reach.
        half_rate_bytes: message size that takes twice its time at full rate.
        shared_efficiency: fraction of a node's rate that remains if several rings, each with several of its
            GPUs, cross the same NICs.
        source: where the nominal values are from.
        calibration: what the other values were fitted to. None is nothing.
    """

    rate: Rate
    interface_rate: Rate | None = None
    latency: TimeS | None = None
    latency_per_step: TimeS | None = None
    efficiency: float | None = Field(default=None, gt=0, le=1)
    half_rate_bytes: NonNegativeFloat | None = None
    shared_efficiency: float | None = Field(default=None, gt=0, le=1)


class SharedCores(Spec):
    """CPU cores on which ranks compute, and which they share.

    Attributes:
        count: number of cores.
        threads: number of threads of one rank to which the values of the device apply.
        shared_by: the ranks that share the cores: those of a `node`, or `all` if hosts are emulated on one
            machine.
        serial: fraction of a rank's computation that further threads don't accelerate (Amdahl 1967,
            doi 10.1145/1465482.1465560).
        source: where the values are from.
    """

    count: PositiveInt
    threads: PositiveInt
    shared_by: Literal["node", "all"] = "node"
    serial: float = Field(default=0.2, ge=0, le=1)
    source: str


class Cluster(Spec):
    """A cluster of equal nodes.

    Attributes:
        name: name of the cluster. In a file, the file's name if absent.
        description: free text.
        gpu: name of a GPU preset, or the values of a GPU written out.
        gpus_per_node: number of GPUs of a node.
        nodes: number of nodes.
        intra_node: link between the GPUs of a node: name of a preset, or a link written out.
        inter_node: link of one NIC between nodes: name of a preset, or a link written out.
        nics_per_node: number of NICs of a node.
        shared_cores: CPU cores that ranks share, if ranks compute on CPUs.
        dollars_per_gpu_hour: price of one GPU for an hour in US dollars.
        network_efficiency: times of collectives that were measured on this cluster.
        source: where the description is from.
    """

    deprecated_keys = {"cores": "shared_cores"}

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    gpu: GPU | str
    gpus_per_node: PositiveInt
    nodes: PositiveInt
    intra_node: Annotated[Link, BeforeValidator(_link)]
    inter_node: Annotated[Link, BeforeValidator(_link)]
    nics_per_node: PositiveInt = 1
    shared_cores: SharedCores | None = None
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
        """Number of GPUs."""
        return self.gpus_per_node * self.nodes

    @property
    def accelerator(self) -> GPU:
        """The GPU itself, also if `gpu` is a name."""
        return gpu(self.gpu) if isinstance(self.gpu, str) else self.gpu

    @property
    def node_rate_Bps(self) -> float:
        """Nominal rate of all NICs of one node together in one direction, in bytes/s."""
        return self.inter_node.rate * self.nics_per_node / 8


@lru_cache
def gpu(name: str) -> GPU:
    """Returns the GPU preset with a name or an alias, ignoring case.

    Raises:
        ValueError: if there is none. The message lists the presets.
    """
    lower_name = name.strip().lower()
    for known in names("gpu"):
        if lower_name == known.lower():
            return GPU.model_validate(named("gpu", known))
    for known in names("gpu"):
        candidate = GPU.model_validate(named("gpu", known))
        if lower_name in (alias.lower() for alias in candidate.aliases):
            return candidate
    raise ValueError(one_of("gpu", name, names("gpu")))
