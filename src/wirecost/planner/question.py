"""The question of a search: the model, the GPUs, the batch, and what a plan must meet."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.setup import OTHER_SOFTWARE, Setup, setup
from wirecost.errors import SpecError
from wirecost.planner.capabilities import ANY, Capabilities, capabilities_of
from wirecost.planner.constraints import Constraint
from wirecost.planner.schedules import MEASURED_SCHEDULES
from wirecost.spec import Cluster, MatrixPrecision, Plan, Precision, Stack, Workload, stack_named
from wirecost.spec.plan import PipelineSchedule

USUAL_BATCH_TOKENS = ((1e9, 0.5e6), (2.7e9, 1e6), (13e9, 2e6), (float("inf"), 4e6))
"""Tokens of a global batch by the size of the model: parameters up to, and tokens (Brown et al. 2020,
arXiv:2005.14165, table 2.1)."""


@dataclass(frozen=True)
class Question:
    """What is searched. Batches count sequences.

    Attributes:
        workload: the model.
        cluster: the cluster, with at least `gpus` GPUs.
        gpus: number of GPUs of the job.
        global_batch: number of sequences in an iteration.
        stacks: the software among which the search chooses.
        precision: precision of parameters, gradients and activations.
        matrix_precision: precision of the layers' matrix products, if it is lower.
        constraints: what every plan must meet.
        headroom: share of the GPU's memory that a plan leaves free.
        schedules: the pipeline schedules that may be chosen, of `wirecost.planner.choices.SCHEDULES`.
        ranks_uncertain: whether plans that may not fit are ranked among those that do.
        target: what the framework can do for which plans are written, besides the stacks.
    """

    workload: Workload
    cluster: Cluster
    gpus: int
    global_batch: int
    stacks: tuple[Stack, ...]
    precision: Precision = Precision.BF16
    matrix_precision: MatrixPrecision | None = None
    constraints: tuple[Constraint, ...] = ()
    headroom: float = 0.0
    schedules: tuple[PipelineSchedule, ...] = MEASURED_SCHEDULES
    ranks_uncertain: bool = False
    target: Capabilities = ANY

    @property
    def layers(self) -> int:
        """Number of layers that a pipeline divides."""
        return self.workload.layers + (self.workload.decoder_layers or 0)

    @property
    def usable_bytes(self) -> float:
        """Memory in bytes of a GPU that a plan may use."""
        return self.cluster.accelerator.memory_bytes * (1 - self.headroom)

    def capabilities(self, stack: int) -> Capabilities:
        """Returns the choices of the stack at a place, of those that the target has too."""
        return capabilities_of(self.stacks[stack]).both(self.target)

    def setup(self, plan: Plan, micro_batch: int, stack: Stack) -> Setup:
        """Returns the checked setup of a plan, as a prediction has it.

        Raises:
            SpecError: if the plan is not possible.
        """
        return setup(
            self.workload,
            plan,
            self.cluster,
            stack=stack,
            gpus=self.gpus,
            micro_batch=micro_batch,
            global_batch=self.global_batch,
        )


LARGEST = 10**9
"""Largest number of GPUs, sequences of a batch, layers and experts, so that their divisors are found quickly."""
USUAL_STACKS = ("megatron-core", "fsdp-flash")
"""The stacks of a search that names none."""


def usual_stacks(cluster: Cluster) -> tuple[Stack, ...]:
    """Returns the stacks of a search that names none, on a cluster's accelerators."""
    other = OTHER_SOFTWARE.get(cluster.accelerator.architecture)
    return tuple(stack_named(name) for name in ((other,) if other else USUAL_STACKS))


def usual_global_batch(workload: Workload, gpus: int, parameters: float) -> int:
    """Returns a usual number of sequences of an iteration: a power of two for each GPU, or of GPUs for each
    sequence, so that it divides over them."""
    tokens = next(size for limit, size in USUAL_BATCH_TOKENS if parameters <= limit)
    each = tokens / workload.sequence_length / gpus
    rounded = 1
    while rounded * 1.5 < each:
        rounded *= 2
    return gpus * rounded


def check_question(question: Question) -> None:
    """Checks what no plan can mend.

    Raises:
        SpecError: if the GPUs don't fill nodes, or the batch can't be divided at all.
    """
    per_node = question.cluster.gpus_per_node
    if question.gpus < 1:
        raise SpecError(f"gpus: {question.gpus} can't run anything; at least 1")
    if question.gpus > per_node and question.gpus % per_node:
        below = question.gpus // per_node * per_node
        raise SpecError(
            f"gpus: {question.gpus} does not fill whole nodes of {per_node}; nearest that does: "
            f"{below} or {below + per_node}"
        )
    if question.global_batch < 1:
        raise SpecError(f"global_batch: {question.global_batch} is no batch; at least 1")
    if question.global_batch > LARGEST:
        raise SpecError(f"global_batch: {question.global_batch} sequences are more than any job trains on")
    moe = question.workload.mixture_of_experts
    for name, count in (
        ("gpus", question.gpus),
        ("layers", question.layers),
        ("experts", moe.experts if moe else 1),
    ):
        if count > LARGEST:
            raise SpecError(f"{name}: {count} are more than any job has; at most {LARGEST}")
    if not 0 <= question.headroom < 1:
        raise SpecError(f"headroom: {question.headroom} is no share of memory; 0 or more and below 1")
