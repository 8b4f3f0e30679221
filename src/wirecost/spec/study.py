"""Studies: a matrix of workloads x networks x plans x scaling x hosts, which is expanded to experiments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)

from wirecost.spec.base import Spec
from wirecost.spec.experiment import (
    Data,
    Device,
    Experiment,
    Memory,
    MinTime,
    Optimizer,
    Periodic,
    ProfileIterations,
    Scaling,
    Timeout,
)
from wirecost.spec.job import JOB_ITERATIONS, JOB_PROFILE_ITERATIONS, JOB_WARMUP, Job, JobExperiment
from wirecost.spec.launcher import ranks_per_host_of
from wirecost.spec.megatron import MegatronJob, is_megatron
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.presets import named
from wirecost.spec.workload import Workload, nearest_multiples
from wirecost.units import Seconds

MOST_TRIALS = 4
"""Most trials of a search for the largest micro-batch."""
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
    """A scaling rule: `strong` with a `global_batch`, `weak` with a `micro_batch`, or `max-batch`.

    Attributes:
        kind: `strong` keeps the global batch constant over the ranks. `weak` keeps each rank's micro-batch.
            `max-batch` finds the largest micro-batch that fits into memory.
        global_batch: number of sequences in one iteration of all ranks together. Strong scaling needs it.
        micro_batch: number of sequences that a rank computes at once. Weak scaling needs it. With strong scaling
            the rest of each rank's share is accumulated, and None is the whole share. With `max-batch` it is the
            first one that is tried, and None is the predicted one.
        memory: with `max-batch`, the memory of a rank, as `40 GiB`. None is the memory of the smallest GPU. Ranks
            on processor cores need it.
        hosts: numbers of hosts for this rule, which replace the study's. An entry like `2x4` is hosts x ranks on
            each host.
    """

    kind: Scaling
    global_batch: PositiveInt | None = None
    micro_batch: PositiveInt | None = None
    memory: Memory | None = None
    hosts: tuple[HostShape, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _has_its_batch(self) -> ScalingRule:
        if self.kind is Scaling.STRONG and self.global_batch is None:
            raise ValueError("strong scaling needs a global_batch")
        if self.kind is Scaling.WEAK and (self.micro_batch is None or self.global_batch is not None):
            raise ValueError("weak scaling needs a micro_batch and no global_batch")
        if self.kind is Scaling.MAX_BATCH and self.global_batch is not None:
            raise ValueError("max-batch finds the global_batch itself; leave it out")
        if self.kind is not Scaling.MAX_BATCH and self.memory is not None:
            raise ValueError(f"memory belongs to max-batch, not to {self.kind}")
        return self

    def batches(self, data_parallel_degree: int) -> tuple[int, int]:
        """Returns (global_batch, micro_batch) at a data-parallel degree. A search for the largest micro-batch
        starts at 1.

        Raises:
            ValueError: if the global batch does not divide over the ranks.
        """
        if self.kind is Scaling.MAX_BATCH:
            return data_parallel_degree, 1
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


@dataclass(frozen=True)
class BatchSearch:
    """A search for the largest micro-batch that fits into memory. Memory doesn't depend on the network, so that
    the trials run over the first one alone.

    Attributes:
        smallest: the experiment with a micro-batch of 1 over each network.
        start: micro-batch of the first trial. None is the predicted one.
        repeats: number of times that the experiment with the largest micro-batch is run.
    """

    smallest: tuple[Experiment, ...]
    start: int | None
    repeats: int

    def at(self, micro_batch: int, network: int = 0, repeat: int = 1) -> Experiment:
        """Returns the experiment with a micro-batch over one of the networks, which are numbered from 0."""
        base = self.smallest[network]
        batches = {"micro_batch": micro_batch, "global_batch": micro_batch * base.data_parallel_degree}
        return base.model_copy(update={**batches, "repeat": repeat})

    def with_batch(self, micro_batch: int) -> list[Experiment]:
        """Returns the experiments with a micro-batch over all networks, with their repeats."""
        repeats = range(1, self.repeats + 1)
        return [self.at(micro_batch, network, r) for network in range(len(self.smallest)) for r in repeats]


Named = Annotated[str, Field(min_length=1)]


def _kind_of_workload(value: Any) -> str:
    """Returns the tag of a workload's kind. The steps of a place that begin with `function-` aren't shown to
    users."""
    if isinstance(value, MegatronJob) or is_megatron(value):
        return "function-megatron"
    if isinstance(value, Job) or (isinstance(value, dict) and "command" in value):
        return "function-job"
    return "function-model"


WorkloadEntry = Annotated[
    Annotated[Workload, BeforeValidator(lambda v: named("workload", v)), Tag("function-model")]
    | Annotated[Job, Tag("function-job")]
    | Annotated[MegatronJob, AfterValidator(MegatronJob.as_job), Tag("function-megatron")],
    Discriminator(_kind_of_workload),
]
"""A model that wirecost trains, a command that is started unchanged, or a model for Megatron-Core, which becomes
its command."""
NetworkEntry = Annotated[Network, BeforeValidator(lambda v: named("network", v))]
PlanEntry = Annotated[Plan, BeforeValidator(lambda v: named("plan", v))]


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
        """Leaves out what a study of commands doesn't have, because a file must not have it empty."""
        return {key: value for key, value in serialise(self).items() if value or key not in ("plans", "scaling")}

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
        tried = {Scaling.MAX_BATCH: MOST_TRIALS}
        rules = sum(len(rule.hosts or self.hosts) * tried.get(rule.kind, 1) for rule in self.scaling)
        count = len(self.networks) * self.repeats
        count *= len(self.models) * len(self.plans) * rules + len(self.jobs) * len(self.hosts)
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
        number of hosts.

        Raises:
            ValueError: see `experiments`.
        """
        experiments: dict[str, JobExperiment] = {}
        for job in self.jobs:
            for shape in self.hosts:
                for network in self.networks:
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
