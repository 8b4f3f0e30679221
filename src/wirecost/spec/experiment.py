"""Experiments: one run of a study, with everything that is needed to repeat it."""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator

from wirecost.spec.base import Spec
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.workload import Workload, nearest_multiples
from wirecost.units import Seconds, SizeBytes, TimeS

MAX_EMULATED_HOSTS = 64
"""Largest number of hosts that a bridge and a machine's memory support in practice. Each host runs at least one
training process."""


MAX_TIMEOUT_S = 30 * 24 * 3600
"""Largest timeout: a month. Longer ones are mistakes, and much longer ones overflow the process group's clock."""


def _timeout(value: Seconds) -> Seconds:
    if not 0 < value <= MAX_TIMEOUT_S:
        raise ValueError(f"a timeout lies above 0 s and is at most {MAX_TIMEOUT_S // 3600} h, not {value:.6g} s")
    return value


ProfileIterations = Annotated[int, Field(ge=0, le=100)]
"""Number of iterations under torch.profiler after the measured ones. A trace contains every operator and
kernel, so more iterations fill the disk."""

Timeout = Annotated[TimeS, AfterValidator(_timeout)]


def _min_time(value: Seconds) -> Seconds:
    if not 0 <= value <= MAX_TIMEOUT_S:
        raise ValueError(f"a time to measure lies between 0 s and {MAX_TIMEOUT_S // 3600} h, not {value:.6g} s")
    return value


MinTime = Annotated[TimeS, AfterValidator(_min_time)]
"""Minimum measuring time. Iterations are added to `iterations` until it is reached."""


LEAST_MEMORY_BYTES = 64 << 20
"""Smallest memory of a rank. Less doesn't hold the libraries of one."""


def _memory(value: int) -> int:
    if value < LEAST_MEMORY_BYTES:
        raise ValueError(f"a rank needs at least {LEAST_MEMORY_BYTES >> 20} MiB, not {value} B")
    return value


Memory = Annotated[SizeBytes, AfterValidator(_memory)]
"""Memory of a rank: of its GPU, or of its process."""

ADDED_WORKLOAD_KEYS = (
    "latent_attention",
    "multi_token_prediction",
    "parallel_block",
    "sliding_window",
    "full_attention_layers",
    "extra_layer_parameters",
    "extra_parameters",
    "approximations",
)
"""Keys of a workload that results from before did not have. With its default, a key is not part of a digest."""


def with_repeat(name: str, repeat: int) -> str:
    """Returns the name of a repeat of an experiment. The first one has the experiment's own name."""
    return name if repeat == 1 else f"{name}_r{repeat}"


class Scaling(StrEnum):
    """How the batch depends on the number of ranks."""

    STRONG = "strong"  # the global batch is constant, and each rank's share shrinks
    WEAK = "weak"  # the micro-batch is constant, and the global batch grows
    MAX_BATCH = "max-batch"  # the micro-batch is the largest one that fits into memory


class Device(StrEnum):
    """The device on which ranks compute. `cuda` communicates with NCCL, and `cpu` with gloo."""

    CPU = "cpu"
    CUDA = "cuda"


class Data(Spec):
    """The training text and the tokenizer.

    Attributes:
        corpus: `python-docs` (the language reference that every CPython ships), the path of a text file, the
            folder of a corpus that `wirecost data prepare` wrote, or one of Megatron's data sets without .bin and
            .idx.
        tokenizer: `bpe`, a byte-level BPE that is trained on the text with the workload's vocabulary, or `gpt2`. A
            prepared corpus has its own.
    """

    corpus: str = "python-docs"
    tokenizer: str = Field(default="bpe", pattern=r"^(bpe|gpt2)$")


class LossScaling(Spec):
    """Dynamic loss scaling for FP16 (Micikevicius et al. 2018, section 3.2).

    After an overflow the scale is halved, and the step is skipped. After `window` steps without an overflow the
    scale is doubled.

    Attributes:
        initial: scale of the first iteration.
        window: number of iterations without an overflow after which the scale is doubled.
        smallest: scale below which it is not halved any more.
    """

    initial: float = Field(default=2.0**16, ge=1)
    window: PositiveInt = 1000
    smallest: float = Field(default=1.0, gt=0)


class Optimizer(Spec):
    """AdamW (Loshchilov & Hutter 2019) with the usual betas for language models.

    Attributes:
        learning_rate: step size.
        weight_decay: decoupled weight decay.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: constant in the denominator of a step.
        gradient_clipping: largest global norm of the gradients (Pascanu et al. 2013). None disables clipping.
        loss_scaling: dynamic loss scaling with `precision: fp16`.
    """

    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    gradient_clipping: float | None = Field(default=None, gt=0)
    loss_scaling: LossScaling = LossScaling()


class Periodic(Spec):
    """Tasks between iterations.

    Attributes:
        checkpoint_every: number of iterations between two checkpoints. 0 disables checkpoints.
        validate_every: number of iterations between two validations. 0 disables validation.
        validation_batches: number of global batches of text that isn't used for training.
    """

    checkpoint_every: NonNegativeInt = 0
    validate_every: NonNegativeInt = 0
    validation_batches: PositiveInt = 4


ADDED_PLAN_KEYS = ("graphs", "lora_rank", "context_communication", "tensor_overlap")
"""Keys of plans that earlier results don't have. Results without them keep their digest."""


class Experiment(Spec):
    """A workload with a plan, on hosts that a network connects. A rank is one process. Batches count sequences.

    Attributes:
        workload: model that is trained.
        plan: parallelism and precision.
        network: network between the hosts.
        scaling: rule of the study from which the batches follow.
        hosts: number of hosts.
        ranks_per_host: number of ranks on each host.
        global_batch: number of sequences in one iteration of all ranks together.
        micro_batch: number of sequences that a rank computes at once.
        iterations: smallest number of measured iterations.
        min_time: minimum measuring time. Iterations are added until it is reached.
        warmup: number of iterations before the measured ones.
        seed: seed of weights and batches.
        device: `cpu` (gloo) or `cuda` (NCCL, one GPU for each rank).
        data: training text and tokenizer.
        optimizer: settings of AdamW.
        periodic: checkpoints and validation between iterations.
        profile_iterations: number of iterations under torch.profiler after the measured ones.
        timeout: longest time that the experiment may take.
        repeat: number of this run of the experiment, from 1.
        memory: memory that a rank may use. None is what there is.
    """

    former_keys = {"fabric": "network"}

    workload: Workload
    plan: Plan
    network: Network
    scaling: Scaling
    hosts: PositiveInt
    ranks_per_host: PositiveInt = 1
    global_batch: PositiveInt
    micro_batch: PositiveInt
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
    repeat: PositiveInt = 1
    memory: Memory | None = None

    @model_validator(mode="after")
    def _fits(self) -> Experiment:
        if self.network.emulate is not None and self.hosts > MAX_EMULATED_HOSTS:
            raise ValueError(f"hosts: {self.hosts} emulated hosts are too many; use at most {MAX_EMULATED_HOSTS}")
        if self.min_time >= self.timeout:
            raise ValueError(f"min_time: {self.min_time:.6g} s, but the timeout is {self.timeout:.6g} s; raise it")
        if self.ranks % self.plan.model_parallel:
            raise ValueError(
                f"{self.ranks} ranks do not divide over plan '{self.plan.name}', "
                f"which needs a multiple of {self.plan.model_parallel}"
            )
        if self.global_batch % (self.micro_batch * self.data_parallel_degree):
            raise ValueError(
                f"global_batch {self.global_batch} does not divide over {self.data_parallel_degree} data-parallel "
                f"ranks of micro-batch {self.micro_batch}; nearest that does: "
                f"{nearest_multiples(self.global_batch, self.micro_batch * self.data_parallel_degree)}"
            )
        return self

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.ranks_per_host

    @property
    def data_parallel_degree(self) -> int:
        """Number of replicas of the model."""
        return self.ranks // self.plan.model_parallel

    @property
    def accumulation(self) -> int:
        """Number of micro-batches that each rank accumulates per iteration."""
        return self.global_batch // (self.micro_batch * self.data_parallel_degree)

    @property
    def tokens_per_iteration(self) -> int:
        """Number of tokens in the global batch."""
        return self.global_batch * self.workload.sequence_length

    @cached_property
    def digest(self) -> str:
        """The first 10 hexadecimal digits of the SHA-256 of the experiment's canonical JSON.

        It identifies the experiment. The measuring time `min_time` and the number of the repeat aren't part of it.
        """
        content = self.model_dump(mode="json", exclude={"min_time", "repeat"})
        # Results from before the key was renamed keep their digest.
        content["fabric"] = content.pop("network")
        if not self.profile_iterations:
            # Results from before this setting existed keep their digest.
            del content["profile_iterations"]
        if self.memory is None:
            del content["memory"]
        for key in ADDED_PLAN_KEYS:
            if getattr(self.plan, key) == Plan.model_fields[key].default:
                del content["plan"][key]
        for key in ADDED_WORKLOAD_KEYS:
            if getattr(self.workload, key) == Workload.model_fields[key].default:
                del content["workload"][key]
        if self.workload.mixture_of_experts and self.workload.mixture_of_experts.moe_layers is None:
            del content["workload"]["mixture_of_experts"]["moe_layers"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def slug(self) -> str:
        """A readable directory name that is unique to this run of the experiment."""
        return with_repeat(self.common_slug, self.repeat)

    @cached_property
    def common_slug(self) -> str:
        """A readable name that all repeats of the experiment share."""
        readable = "_".join(
            [
                self.workload.name,
                self.network.name,
                self.plan.name,
                str(self.scaling),
                f"{self.hosts}x{self.ranks_per_host}",
                f"b{self.global_batch}",
            ]
        )
        return f"{re.sub(r'[^A-Za-z0-9._+-]', '-', readable)}_{self.digest}"
