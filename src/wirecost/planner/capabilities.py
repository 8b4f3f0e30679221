"""What training frameworks can do: the plans among which a search chooses for a stack.

The entries are those of the frameworks' documentation: Megatron-Core's distributed optimizer shards optimizer
states (ZeRO-1) over all replicas or over instances of them, and expert parallelism with tensor parallelism needs
sequence parallelism; PyTorch's FSDP shards gradients or parameters as well, over all ranks or inside nodes;
DeepSpeed's pipelines exclude ZeRO-2 and ZeRO-3. A stack without an entry, as one of a user's own, can do
everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.spec import Stack
from wirecost.spec.plan import PipelineSchedule


@dataclass(frozen=True)
class Capabilities:
    """The choices that a stack offers.

    Attributes:
        zero: ZeRO stages.
        zero_with_pipeline: those of them that go with pipeline parallelism.
        hybrid: whether shards can stay inside nodes.
        tensor, pipeline, interleaved, context, expert: kinds of parallelism.
        placement: whether pipeline stages can be neighbours instead of tensor-parallel ranks.
        data_last: whether pipelines can be inside nodes, and replicas across them.
        schedules: pipeline schedules. None are all.
        experts_need_sp: whether experts with tensor parallelism need sequence parallelism.
    """

    zero: tuple[int, ...] = (0, 1, 2, 3)
    zero_with_pipeline: tuple[int, ...] = (0, 1, 2, 3)
    hybrid: bool = True
    tensor: bool = True
    pipeline: bool = True
    interleaved: bool = True
    context: bool = True
    expert: bool = True
    placement: bool = True
    data_last: bool = True
    schedules: tuple[PipelineSchedule, ...] | None = None
    experts_need_sp: bool = False

    def both(self, other: Capabilities) -> Capabilities:
        """Returns the choices that both offer."""
        kinds = ("hybrid", "tensor", "pipeline", "interleaved", "context", "expert", "placement", "data_last")
        listed = [each for each in (self.schedules, other.schedules) if each is not None]
        return Capabilities(
            zero=tuple(stage for stage in self.zero if stage in other.zero),
            zero_with_pipeline=tuple(s for s in self.zero_with_pipeline if s in other.zero_with_pipeline),
            schedules=tuple(s for s in listed[0] if s in listed[-1]) if listed else None,
            experts_need_sp=self.experts_need_sp or other.experts_need_sp,
            **{kind: getattr(self, kind) and getattr(other, kind) for kind in kinds},
        )


ANY = Capabilities()
"""Every choice."""
_MEGATRON = Capabilities(zero=(0, 1), zero_with_pipeline=(0, 1), placement=False, experts_need_sp=True)
_FSDP = Capabilities(
    zero=(0, 2, 3), zero_with_pipeline=(), tensor=False, pipeline=False, interleaved=False, context=False,
    expert=False, placement=False, data_last=False,
)  # fmt: skip
_DEEPSPEED = Capabilities(
    zero=(0, 1, 2, 3), zero_with_pipeline=(0, 1), hybrid=False, tensor=False, interleaved=False, context=False,
    placement=False, data_last=False,
)  # fmt: skip
_OLDER_MEGATRON = Capabilities(
    zero=(0,), zero_with_pipeline=(0,), hybrid=False, context=False, expert=False, placement=False, data_last=False
)
_OLDER_SHARDED = replace(_OLDER_MEGATRON, zero=(0, 1), zero_with_pipeline=(0, 1))
OF_STACKS = {
    "megatron-core": _MEGATRON,
    "megatron-lm-2021": _OLDER_MEGATRON,
    "megatron-lm-v3": _OLDER_SHARDED,
    "nemo-2022": _OLDER_SHARDED,
    "megatron-deepspeed": Capabilities(
        zero_with_pipeline=(0, 1), hybrid=False, interleaved=False, context=False, placement=False, data_last=False
    ),
    "megatron-deepspeed-flash": Capabilities(
        zero_with_pipeline=(0, 1), hybrid=False, interleaved=False, context=False, placement=False, data_last=False
    ),
    "torchtitan": Capabilities(zero=(0, 2, 3), zero_with_pipeline=(0, 2, 3), placement=False, data_last=False),
    "fsdp-flash": _FSDP,
    "fsdp-compile": _FSDP,
    "deepspeed": _DEEPSPEED,
    "deepspeed-zero3-2021": _DEEPSPEED,
    "pytorch-ddp": Capabilities(
        zero=(0,), zero_with_pipeline=(), hybrid=False, tensor=False, pipeline=False, interleaved=False,
        context=False, expert=False, placement=False, data_last=False,
    ),
    "nanotron": Capabilities(
        zero=(0, 1), zero_with_pipeline=(0, 1), hybrid=False, placement=False, data_last=False
    ),
    "internevo": Capabilities(zero=(0, 1), zero_with_pipeline=(0, 1), placement=False, data_last=False),
}  # fmt: skip
"""The choices of the presets of stacks, by name."""


def capabilities_of(stack: Stack) -> Capabilities:
    """Returns the choices of a stack."""
    return OF_STACKS.get(stack.name, ANY)
