"""One iteration of one rank, and the phases of an engine's."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from wirecost.breakdown.integers import Moment, Natural
from wirecost.breakdown.parts import Parts


class Phase(StrEnum):
    """Phases of an engine iteration.

    docs/explanation/measurement.md matches these names with Megatron-LM's timers.
    """

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    GRAD_SYNC = "grad_sync"
    PARAM_GATHER = "param_gather"
    PIPELINE_RECV_FORWARD = "pipeline_recv_forward"
    PIPELINE_SEND_FORWARD = "pipeline_send_forward"
    PIPELINE_RECV_BACKWARD = "pipeline_recv_backward"
    PIPELINE_SEND_BACKWARD = "pipeline_send_backward"
    EMBEDDING_SYNC = "embedding_sync"
    TENSOR_PARALLEL = "tensor_parallel"
    CONTEXT_PARALLEL = "context_parallel"
    EXPERT_DISPATCH = "expert_dispatch"
    EXPERT_COMBINE = "expert_combine"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    VALIDATION = "validation"
    OTHER = "other"


class Iteration(BaseModel):
    """One iteration of one rank. `phases` in nanoseconds (engine runs only) sum to the window with `other`.

    `expert_load` is the number of copies of tokens that the rank's experts computed over the number that the rank
    sent to experts. Its mean over the ranks of an expert group is 1. None without expert parallelism.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rank: Natural
    name: str
    parts: Parts
    phases: dict[Phase, Natural] = {}
    start_ns: Moment | None = None  # on the source's own clock
    loss: float | None = None
    expert_load: float | None = Field(default=None, ge=0)
