"""Experiment: one cell of a study, everything that is needed to run it again."""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator

from wirecost.spec.base import Spec
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.workload import Workload, nearest_multiples
from wirecost.units import Seconds, TimeS

MAX_EMULATED_HOSTS = 64
"""What one bridge and one machine's memory bear in practice; each host is at least one training process."""


MAX_TIMEOUT_S = 30 * 24 * 3600
"""A month: longer is a mistake, and far longer overflows the process group's clock."""


def _timeout(value: Seconds) -> Seconds:
    if not 0 < value <= MAX_TIMEOUT_S:
        raise ValueError(f"a timeout lies above 0 s and is at most {MAX_TIMEOUT_S // 3600} h, not {value:.6g} s")
    return value


ProfileIterations = Annotated[int, Field(ge=0, le=100)]
"""Iterations under torch.profiler after the measured ones. A trace holds every operator and kernel: more than this
is a mistake, and fills the disk."""

Timeout = Annotated[TimeS, AfterValidator(_timeout)]


def _min_time(value: Seconds) -> Seconds:
    if not 0 <= value <= MAX_TIMEOUT_S:
        raise ValueError(f"a time to measure lies between 0 s and {MAX_TIMEOUT_S // 3600} h, not {value:.6g} s")
    return value


MinTime = Annotated[TimeS, AfterValidator(_min_time)]
"""How long is measured at least: where `iterations` take less, more of them are."""


class Scaling(StrEnum):
    STRONG = "strong"  # the global batch stays, each rank's share shrinks
    WEAK = "weak"  # the micro-batch stays, the global batch grows


class Device(StrEnum):
    """What a rank computes on; `cuda` communicates over NCCL, `cpu` over gloo."""

    CPU = "cpu"
    CUDA = "cuda"


class Data(Spec):
    """The text and the tokenizer.

    `corpus`: `python-docs` (the language reference that every CPython carries) or the path of a text file.
    `tokenizer`: `bpe`, a byte-level BPE trained on that text to the workload's vocabulary, or `gpt2`.
    """

    corpus: str = "python-docs"
    tokenizer: str = Field(default="bpe", pattern=r"^(bpe|gpt2)$")


class LossScaling(Spec):
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018, 3.2): halved on overflow, whose step is skipped,
    doubled after `window` steps without one."""

    initial: float = Field(default=2.0**16, ge=1)
    window: PositiveInt = 1000
    smallest: float = Field(default=1.0, gt=0)


class Optimizer(Spec):
    """AdamW (Loshchilov & Hutter 2019) with the usual language model betas.

    `gradient_clipping` is the largest global norm of the gradients (Pascanu et al. 2013); None clips nothing.
    """

    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    gradient_clipping: float | None = Field(default=None, gt=0)
    loss_scaling: LossScaling = LossScaling()


class Periodic(Spec):
    """What happens between iterations, every so many of them; 0 is never."""

    checkpoint_every: NonNegativeInt = 0
    validate_every: NonNegativeInt = 0
    validation_batches: PositiveInt = 4  # global batches of text that isn't trained on


class Experiment(Spec):
    """A workload under a plan on hosts over a network. A rank is one process; batches count sequences."""

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

    @model_validator(mode="after")
    def _fits(self) -> Experiment:
        if self.network.emulate is not None and self.hosts > MAX_EMULATED_HOSTS:
            raise ValueError(f"hosts: {self.hosts} emulated hosts can't exist; at most {MAX_EMULATED_HOSTS} do")
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
        return self.hosts * self.ranks_per_host

    @property
    def data_parallel_degree(self) -> int:
        return self.ranks // self.plan.model_parallel

    @property
    def accumulation(self) -> int:
        """Micro-batches that each rank accumulates per iteration."""
        return self.global_batch // (self.micro_batch * self.data_parallel_degree)

    @property
    def tokens_per_iteration(self) -> int:
        return self.global_batch * self.workload.sequence_length

    @property
    def digest(self) -> str:
        """Changes when anything about the experiment does: 10 hex digits of SHA-256 over its canonical JSON.
        However long it is measured, it is the same experiment."""
        content = self.model_dump(mode="json", exclude={"min_time"})
        # Results from before the key was renamed are this experiment's.
        content["fabric"] = content.pop("network")
        if not self.profile_iterations:
            # Results from before there was such a setting are this experiment's.
            del content["profile_iterations"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def slug(self) -> str:
        """A directory name that a person can read and no two different experiments share."""
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
