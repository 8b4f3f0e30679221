"""Studies: a matrix of workloads x networks x plans x scaling x hosts, which is expanded to experiments."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from wirecost.spec.base import Spec
from wirecost.spec.experiment import (
    Data,
    Device,
    Experiment,
    MinTime,
    Optimizer,
    Periodic,
    ProfileIterations,
    Scaling,
    Timeout,
)
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.presets import named
from wirecost.spec.workload import Workload, nearest_multiples
from wirecost.units import Seconds

MAX_EXPERIMENTS = 10_000
"""Largest number of experiments of a study. A larger matrix is a mistake."""


def _host_shape(value: object) -> object:
    """Validates a number of hosts, or text of the form `2x2` for hosts x ranks on each host."""
    if isinstance(value, str):
        if not re.fullmatch(r"[1-9]\d{0,5}x[1-9]\d{0,5}", value):
            raise ValueError(f"'{value}' should be a number of hosts, or hosts x ranks on each, like 2x2")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} should be a number of hosts, or hosts x ranks on each, like 2x2")
    return value


HostShape = Annotated[int | str, BeforeValidator(_host_shape)]
"""Number of hosts with the study's `ranks_per_host`, or text of the form `2x2` with the ranks on each host."""


class ScalingRule(Spec):
    """A scaling rule: `strong` with a `global_batch`, or `weak` with a `micro_batch`.

    Attributes:
        kind: `strong` keeps the global batch constant over the ranks. `weak` keeps each rank's micro-batch.
        global_batch: number of sequences in one iteration of all ranks together. Strong scaling needs it.
        micro_batch: number of sequences that a rank computes at once. Weak scaling needs it. With strong scaling
            the rest of each rank's share is accumulated, and None is the whole share.
        hosts: numbers of hosts for this rule, which replace the study's. An entry like `2x4` is hosts x ranks on
            each host.
    """

    kind: Scaling
    global_batch: PositiveInt | None = None
    micro_batch: PositiveInt | None = None
    hosts: tuple[HostShape, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _has_its_batch(self) -> ScalingRule:
        if self.kind is Scaling.STRONG and self.global_batch is None:
            raise ValueError("strong scaling needs a global_batch")
        if self.kind is Scaling.WEAK and (self.micro_batch is None or self.global_batch is not None):
            raise ValueError("weak scaling needs a micro_batch and no global_batch")
        return self

    def batches(self, data_parallel_degree: int) -> tuple[int, int]:
        """Returns (global_batch, micro_batch) at a data-parallel degree.

        Raises:
            ValueError: if the global batch does not divide over the ranks.
        """
        if self.kind is Scaling.WEAK:
            assert self.micro_batch is not None
            return self.micro_batch * data_parallel_degree, self.micro_batch
        assert self.global_batch is not None
        share = (self.micro_batch or 1) * data_parallel_degree
        if self.global_batch % share:
            raise ValueError(
                f"global_batch {self.global_batch} does not divide over {data_parallel_degree} data-parallel ranks"
                + (f" of micro-batch {self.micro_batch}" if self.micro_batch else "")
                + f"; nearest that does: {nearest_multiples(self.global_batch, share)}"
            )
        return self.global_batch, self.micro_batch or self.global_batch // data_parallel_degree


Named = Annotated[str, Field(min_length=1)]
WorkloadEntry = Annotated[Workload, BeforeValidator(lambda v: named("workload", v))]
NetworkEntry = Annotated[Network, BeforeValidator(lambda v: named("network", v))]
PlanEntry = Annotated[Plan, BeforeValidator(lambda v: named("plan", v))]


class Study(Spec):
    """A matrix of experiments, and the settings that they share.

    Attributes:
        name: name of the study and of its directory of results.
        description: free text for reports.
        workloads: models to train: names of presets, dimensions, or paths of Hugging Face `config.json` files.
        networks: networks to train over: names of presets, or networks written out.
        plans: parallelism and precision to train with: names of presets, or plans written out.
        scaling: rules that say how batches grow with the number of ranks.
        hosts: numbers of hosts. An entry like `2x4` is hosts x ranks on each host.
        ranks_per_host: number of ranks on each host, where `hosts` doesn't say.
        iterations: smallest number of measured iterations of each experiment.
        min_time: minimum measuring time of each experiment. Iterations are added until it is reached.
        warmup: number of iterations before the measured ones.
        seed: seed of weights and batches.
        device: `cpu` (gloo) or `cuda` (NCCL, one GPU for each rank).
        data: training text and tokenizer.
        optimizer: settings of AdamW.
        periodic: checkpoints and validation between iterations.
        profile_iterations: number of iterations under torch.profiler after the measured ones.
        timeout: longest time that one experiment may take.
        benchmark: whether each network is benchmarked before models are trained over it.
    """

    deprecated_keys = {"fabrics": "networks"}

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    workloads: tuple[WorkloadEntry, ...] = Field(min_length=1)
    networks: tuple[NetworkEntry, ...] = Field(min_length=1)
    plans: tuple[PlanEntry, ...] = Field(min_length=1)
    scaling: tuple[ScalingRule, ...] = Field(min_length=1)
    hosts: tuple[HostShape, ...] = Field(default=(2,), min_length=1)
    ranks_per_host: PositiveInt = 1
    iterations: PositiveInt = 8
    min_time: MinTime = Seconds(0)
    warmup: NonNegativeInt = 2
    seed: NonNegativeInt = 1
    device: Device = Device.CPU
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    periodic: Periodic = Periodic()
    profile_iterations: ProfileIterations = 0
    timeout: Timeout = Seconds(600)
    benchmark: bool = True

    @model_validator(mode="after")
    def _expands(self) -> Study:
        for key in ("workloads", "networks", "plans"):
            names = [entry.name for entry in getattr(self, key)]
            repeated = {n for n in names if names.count(n) > 1}
            if repeated:
                raise ValueError(f"{key}: '{min(repeated)}' appears twice; give each entry its own name")
        count = (
            len(self.workloads) * len(self.networks) * len(self.plans)
            * sum(len(rule.hosts or self.hosts) for rule in self.scaling)
        )  # fmt: skip
        if count > MAX_EXPERIMENTS:
            raise ValueError(f"the matrix has {count} experiments; at most {MAX_EXPERIMENTS} make a study")
        self.experiments()
        return self

    def experiments(self) -> list[Experiment]:
        """Returns the distinct experiments of the matrix in the study's order.

        Raises:
            ValueError: if an experiment is invalid, for example because a batch does not divide. The message
                names the key.
        """
        experiments: dict[str, Experiment] = {}
        for number, rule in enumerate(self.scaling):
            for workload in self.workloads:
                for plan in self.plans:
                    for hosts in rule.hosts or self.hosts:
                        for network in self.networks:
                            where = f"scaling[{number}] with {hosts} hosts"
                            experiment = self._experiment(
                                where, rule, hosts, workload=workload, plan=plan, network=network
                            )
                            experiments.setdefault(experiment.digest, experiment)
        return list(experiments.values())

    def _shape(self, shape: HostShape) -> tuple[int, int]:
        """Returns (hosts, ranks on each host)."""
        if isinstance(shape, int):
            return shape, self.ranks_per_host
        hosts, _, per_host = shape.partition("x")
        return int(hosts), int(per_host)

    def _experiment(
        self, where: str, rule: ScalingRule, shape: HostShape, *, workload: Workload, plan: Plan, network: Network
    ) -> Experiment:
        """Returns one experiment of the matrix. `where` names its place in error messages."""
        hosts, per_host = self._shape(shape)
        ranks = hosts * per_host
        shared: dict[str, Any] = {
            key: getattr(self, key)
            for key in (
                "iterations",
                "min_time",
                "warmup",
                "seed",
                "device",
                "data",
                "optimizer",
                "periodic",
                "profile_iterations",
                "timeout",
            )
        }
        try:
            if ranks % plan.model_parallel:
                raise ValueError(f"{ranks} ranks are not a multiple of plan '{plan.name}'s {plan.model_parallel}")
            global_batch, micro_batch = rule.batches(ranks // plan.model_parallel)
            return Experiment(
                workload=workload,
                plan=plan,
                network=network,
                scaling=rule.kind,
                hosts=1 if network.inside else hosts,
                ranks_per_host=ranks if network.inside else per_host,
                global_batch=global_batch,
                micro_batch=micro_batch,
                **shared,
            )
        except ValidationError as error:
            message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise ValueError(f"{where}: {message}") from error
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
