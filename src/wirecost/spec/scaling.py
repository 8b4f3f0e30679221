"""How batches grow with the number of ranks, and on which hosts."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from wirecost.spec.base import Spec
from wirecost.spec.experiment import Memory, Scaling
from wirecost.spec.workload import nearest_multiples


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
