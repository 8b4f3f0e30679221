"""Studies: a matrix of workloads x networks x plans x scaling x hosts, which is expanded to experiments."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from wirecost.errors import one_of
from wirecost.spec.base import Spec
from wirecost.spec.batch_search import MOST_TRIALS, BatchSearch
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
from wirecost.spec.job import JOB_ITERATIONS, JOB_PROFILE_ITERATIONS, JOB_WARMUP, Job, JobExperiment
from wirecost.spec.launcher import ranks_per_host_of
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.scaling import HostShape, ScalingRule
from wirecost.spec.study_entries import NetworkEntry, PlanEntry, WorkloadEntry
from wirecost.spec.workload import Workload
from wirecost.units import Seconds

MAX_EXPERIMENTS = 10_000
"""Largest number of experiments of a study. A larger matrix is a mistake."""
_LEFT_OUT_IF_EMPTY = ("plans", "scaling", "network_hosts")
HostShapes = Annotated[tuple[HostShape, ...], Field(min_length=1)]


class Study(Spec):
    """A matrix of experiments, and the settings that they share.

    Attributes:
        name: name of the study and of its directory of results.
        description: free text for reports.
        workloads: models to train: names of presets, dimensions, or paths of Hugging Face `config.json` files. An
            entry with a `command` is a training command that is started unchanged, and one with `engine: megatron`
            is a model that Megatron-Core trains on GPUs with a plan of its own.
        networks: networks to train over: names of presets, or networks written out.
        plans: parallelism and precision to train models with: names of presets, or plans written out.
            Commands have none.
        scaling: rules that say how batches of models grow with the number of ranks, or that the largest batch is
            to be found. Commands have none.
        hosts: numbers of hosts. An entry like `2x4` is hosts x ranks on each host.
        network_hosts: numbers of hosts of commands over single networks, by the network's name, in place of
            `hosts`. `wirecost run --resume` writes it if a folder's networks were measured on different hosts.
        ranks_per_host: number of ranks on each host, where `hosts` doesn't say.
        iterations: smallest number of measured iterations of each experiment. None is 8, and 20 for commands.
        min_time: minimum measuring time of each experiment. Iterations are added until it is reached.
        warmup: number of iterations before the measured ones. None is 2, and 5 for commands.
        seed: seed of weights and batches.
        device: `cpu` (gloo) or `cuda` (NCCL, one GPU for each rank).
        data: training text and tokenizer.
        optimizer: settings of AdamW.
        periodic: checkpoints and validation between iterations.
        profile_iterations: number of iterations under torch.profiler after the measured ones. None is 0, and 3 for
            commands.
        timeout: longest time that one experiment may take.
        repeats: number of times that each experiment is run, each time in fresh processes. With several, the order
            of the experiments is random within each repeat, and statistics are over the repeats.
        benchmark: whether each network is benchmarked before models are trained over it.
    """

    deprecated_keys = {"fabrics": "networks"}

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    workloads: tuple[WorkloadEntry, ...] = Field(min_length=1)
    networks: tuple[NetworkEntry, ...] = Field(min_length=1)
    plans: tuple[PlanEntry, ...] = Field(default=(), min_length=1)
    scaling: tuple[ScalingRule, ...] = Field(default=(), min_length=1)
    hosts: tuple[HostShape, ...] = Field(default=(2,), min_length=1)
    network_hosts: dict[str, HostShapes] = {}
    ranks_per_host: PositiveInt = 1
    iterations: PositiveInt | None = None
    min_time: MinTime = Seconds(0)
    warmup: NonNegativeInt | None = None
    seed: NonNegativeInt = 1
    device: Device = Device.CPU
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    periodic: Periodic = Periodic()
    profile_iterations: ProfileIterations | None = None
    timeout: Timeout = Seconds(600)
    repeats: PositiveInt = 1
    benchmark: bool = True

    @model_serializer(mode="wrap")
    def _without_empty_keys(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out empty keys that most studies don't have. Two of them must not be empty in a file."""
        return {key: value for key, value in serialise(self).items() if value or key not in _LEFT_OUT_IF_EMPTY}

    @model_validator(mode="after")
    def _expands(self) -> Study:
        for key in ("workloads", "networks", "plans"):
            names = [entry.name for entry in getattr(self, key)]
            repeated = {n for n in names if names.count(n) > 1}
            if repeated:
                raise ValueError(f"{key}: '{min(repeated)}' appears twice; give each entry its own name")
        for key in ("plans", "scaling"):
            if self.models and not getattr(self, key):
                raise ValueError(f"{key}: is missing, and '{self.models[0].name}' is a model, which needs it")
        if self.network_hosts and self.models:
            raise ValueError("network_hosts: is for commands; models have the 'hosts' of a scaling rule")
        names = {network.name for network in self.networks}
        for name in self.network_hosts:
            if name not in names:
                raise ValueError(f"network_hosts: {one_of('network', name, names)}")
        tried = {Scaling.MAX_BATCH: MOST_TRIALS}
        rules = sum(len(rule.hosts or self.hosts) * tried.get(rule.kind, 1) for rule in self.scaling)
        count = len(self.networks) * len(self.models) * len(self.plans) * rules
        count += len(self.jobs) * sum(len(self.hosts_of(network)) for network in self.networks)
        count *= self.repeats
        if count > MAX_EXPERIMENTS:
            raise ValueError(f"the matrix has {count} experiments; at most {MAX_EXPERIMENTS} make a study")
        self.experiments()
        self.batch_searches()
        if self.device is Device.CPU:
            for number, rule in enumerate(self.scaling):
                if rule.kind is Scaling.MAX_BATCH and rule.memory is None:
                    raise ValueError(
                        f"scaling[{number}]: max-batch on processor cores needs the memory of a rank, as "
                        "'memory: 2 GiB'; without it the kernel would end other programs"
                    )
        return self

    @property
    def models(self) -> tuple[Workload, ...]:
        """The workloads that wirecost trains."""
        return tuple(w for w in self.workloads if isinstance(w, Workload))

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The workloads that are commands."""
        return tuple(w for w in self.workloads if isinstance(w, Job))

    def hosts_of(self, network: Network) -> tuple[HostShape, ...]:
        """Returns the numbers of hosts of commands over a network."""
        return self.network_hosts.get(network.name, self.hosts)

    def experiments(self) -> list[Experiment | JobExperiment]:
        """Returns the distinct experiments of the matrix in the study's order, those of models first. Repeats of
        an experiment follow each other.

        Raises:
            ValueError: if an experiment is invalid, for example because a batch does not divide. The message
                names the key.
        """
        return [
            each.model_copy(update={"repeat": repeat}) if repeat > 1 else each
            for each in (*self.model_experiments(), *self.job_experiments())
            for repeat in range(1, self.repeats + 1)
        ]

    def job_experiments(self) -> list[JobExperiment]:
        """Returns the distinct experiments of commands, without repeats: each over every network, on every
        number of hosts of this network.

        Raises:
            ValueError: see `experiments`.
        """
        experiments: dict[str, JobExperiment] = {}
        shapes = (shape for each in (self.hosts, *self.network_hosts.values()) for shape in each)
        networks: dict[HostShape, list[Network]] = {shape: [] for shape in shapes}
        for network in self.networks:
            for shape in self.hosts_of(network):
                networks[shape].append(network)
        for job in self.jobs:
            for shape, connected in networks.items():
                for network in connected:
                    hosts, per_host = self._shape(shape)
                    if isinstance(shape, int):
                        per_host = ranks_per_host_of(job.arguments, hosts) or per_host
                    experiment = self._job_experiment(job, network, hosts, per_host)
                    experiments.setdefault(experiment.digest, experiment)
        return list(experiments.values())

    def _job_experiment(self, job: Job, network: Network, hosts: int, per_host: int) -> JobExperiment:
        try:
            return JobExperiment(
                job=job,
                network=network,
                hosts=1 if network.inside else hosts,
                ranks_per_host=hosts * per_host if network.inside else per_host,
                iterations=JOB_ITERATIONS if self.iterations is None else self.iterations,
                warmup=JOB_WARMUP if self.warmup is None else self.warmup,
                profile_iterations=JOB_PROFILE_ITERATIONS
                if self.profile_iterations is None
                else self.profile_iterations,
                timeout=self.timeout,
            )
        except ValidationError as error:
            message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise ValueError(f"workload '{job.name}': {message}") from error

    def model_experiments(self) -> list[Experiment]:
        """Returns the distinct experiments of models, without repeats and without those of `max-batch`.

        Raises:
            ValueError: see `experiments`.
        """
        return list(self._model_experiments)

    @cached_property
    def _model_experiments(self) -> tuple[Experiment, ...]:
        experiments: dict[str, Experiment] = {}
        for number, rule in enumerate(self.scaling):
            if rule.kind is Scaling.MAX_BATCH:
                continue
            for workload in self.models:
                for plan in self.plans:
                    for hosts in rule.hosts or self.hosts:
                        for network in self.networks:
                            where = f"scaling[{number}] with {hosts} hosts"
                            experiment = self._experiment(
                                where, rule, hosts, workload=workload, plan=plan, network=network
                            )
                            experiments.setdefault(experiment.digest, experiment)
        return tuple(experiments.values())

    def batch_searches(self) -> list[BatchSearch]:
        """Returns the searches for the largest micro-batch, one for each workload, plan and number of hosts.

        Raises:
            ValueError: see `experiments`.
        """
        searches: dict[str, BatchSearch] = {}
        for number, rule in enumerate(self.scaling):
            if rule.kind is not Scaling.MAX_BATCH:
                continue
            for workload in self.models:
                for plan in self.plans:
                    for hosts in rule.hosts or self.hosts:
                        where = f"scaling[{number}] with {hosts} hosts"
                        smallest = [
                            self._experiment(where, rule, hosts, workload=workload, plan=plan, network=network)
                            for network in self.networks
                        ]
                        search = BatchSearch(tuple(smallest), rule.micro_batch, self.repeats)
                        searches.setdefault(smallest[0].digest, search)
        return list(searches.values())

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
            for key in ("min_time", "seed", "device", "data", "optimizer", "periodic", "timeout")
        }
        shared |= {
            key: value
            for key in ("iterations", "warmup", "profile_iterations")
            if (value := getattr(self, key)) is not None
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
                memory=rule.memory,
                **shared,
            )
        except ValidationError as error:
            message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise ValueError(f"{where}: {message}") from error
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
