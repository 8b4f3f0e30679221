"""ZeRO-3: the parameters are sharded too, by PyTorch's FSDP2 (`fully_shard`; Zhao et al. 2023, arXiv:2304.11277).

In every micro-batch, each unit gathers its parameters before forward and again before backward, and
reduce-scatters its gradients. Parameters that units share, as a tied embedding, belong to the root, and so do
units that consist mostly of them. The root's parameters are gathered once per micro-batch. FSDP2 keeps FP32
master weights and casts the parameters that it gathers.

Experts that are divided among ranks are sharded over the ranks that hold the same ones, as blocks of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from wirecost.breakdown import Phase
from wirecost.spec import Plan, Precision
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Group, Groups
from wirecost.train.models.base import Unit
from wirecost.train.parallel.base import uncompiled
from wirecost.train.parallel.expert_data import is_expert
from wirecost.train.parallel.fsdp_blocks import are_experts, blocks_of_unit, first_module, in_backward_order
from wirecost.train.parallel.fsdp_collectives import AllGather, ReduceScatter, Replication
from wirecost.train.parallel.traffic import WIRE_DTYPES
from wirecost.train.recorder import Recorder

GATHERED_AS = {Precision.FP32: None, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class Zero3:
    """Shards parameters with FSDP2.

    With overlap, a unit's all-gather is issued when the unit before it starts. Without overlap, communication
    never runs during computation. On a CPU reduce-scatters never overlap, because FSDP2 uses streams for that.

    Attributes:
        parts: the shards of the parameters that all data-parallel ranks share, and those of divided experts, each
            with the groups over which they are disjoint.
        blocks: lists of modules whose parameters are gathered together. The first one is the root.
        in_backward: whether backward of the micro-batch has begun. Forward hooks then run for a recomputation.
    """

    def __init__(self, model: nn.Module, plan: Plan, groups: Groups, recorder: Recorder) -> None:
        self.module: nn.Module = model
        self.recorder = recorder
        self.overlap = plan.overlap
        self.sharding = Communicator(groups.sharding, recorder)
        self.expert_sharding = Communicator(groups.of_experts().sharding, recorder)
        self.replication = Communicator(groups.replication, recorder)
        self.device = next(model.parameters()).device
        self.last = True
        self.in_backward = False
        self._reduced_since: Any = None
        self._waiting_since: Any = None
        tags = {name: vars(p) for name, p in model.named_parameters() if vars(p)}
        self.blocks = self._shard(model, plan, groups)
        for name, parameter in model.named_parameters():
            vars(parameter).update(tags.get(name, {}))
        self.parameters = list(model.parameters())
        shared, experts = ([p for p in self.parameters if is_expert(p) is kind] for kind in (False, True))
        self.parts: list[tuple[Shards, list[Group]]] = [(Shards(shared, groups.sharding), [groups.sharding])]
        if experts:
            of_experts = groups.of_experts().sharding
            self.parts.append((Shards(experts, of_experts), [of_experts, groups.expert]))
        self._time_gathers()

    @property
    def pieces_over(self) -> Group | None:
        return self.sharding.group

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self.last = last
        yield
        self.in_backward = False
        self._waiting_since = None
        if self._reduced_since is not None:
            # After the last unit's gradients have been sent, backward only waits for them.
            self.recorder.tail(Phase.BACKWARD, self._reduced_since, Phase.GRAD_SYNC)
            self._reduced_since = None

    def after_backward(self) -> None:
        pass

    def optimizer_parameters(self) -> Sequence[nn.Parameter]:
        return [p for shards, _ in self.parts for p in shards.parameters]

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        return chain.from_iterable(shards.gradient_pieces() for shards, _ in self.parts)

    def after_step(self) -> None:
        pass

    def complete_parameters(self) -> None:
        """Shards the parameters again, because a forward without backward leaves the root's parameters
        gathered."""
        for block in self.blocks:
            first_module(block).reshard()

    def carried(self) -> dict[str, torch.Tensor]:
        return {}

    def _shard(self, model: nn.Module, plan: Plan, groups: Groups) -> list[list[nn.Module]]:
        """Shards a model, and returns the blocks: the root's, and then those of the units in the order of
        forward."""
        options: dict[str, Any] = {
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=GATHERED_AS[plan.precision],
                reduce_dtype=WIRE_DTYPES.get(plan.gradient_traffic),
                cast_forward_inputs=False,  # the embedding has the precision of the plan, and scalars stay FP32
            ),
        }
        mesh = self.sharding.group.mesh(self.device.type)
        expert_mesh = mesh
        if groups.expert.size > 1:
            expert_mesh = groups.with_process_group(groups.of_experts().sharding).mesh(self.device.type)
        units = [m for m in model.modules() if isinstance(m, Unit)]
        users = Counter(p for unit in units for p in set(unit.parameters()))
        shared = {p for p, count in users.items() if count > 1}
        blocks = [[model], *(block for unit in units for block in blocks_of_unit(unit, shared))]
        for modules in reversed(blocks):  # the root is last, because it takes the remaining parameters
            fully_shard(modules, mesh=expert_mesh if are_experts(modules) else mesh, **options)
        for modules in blocks:
            block = first_module(modules)
            sharding = self.expert_sharding if are_experts(modules) else self.sharding
            # FSDP2 needs only the methods of these classes.
            block.set_custom_all_gather(AllGather(self, sharding))  # type: ignore[arg-type]
            block.set_custom_reduce_scatter(ReduceScatter(self, sharding))  # type: ignore[arg-type]
            block.set_gradient_divide_factor(1.0)
            block.set_force_sum_reduction_for_comms(True)
            # The hooks of `_time_gathers` prefetch, because they can measure it. A block that prefetches
            # itself, which is gathered already, prefetches nothing.
            block.set_modules_to_backward_prefetch([block])
            if self.replication.size > 1:
                block.set_all_reduce_hook(Replication(self))
        return blocks

    def _time_gathers(self) -> None:
        """Registers hooks before and after those of FSDP2, so that the wait for parameters counts as PARAM_GATHER.

        The later hooks also issue the all-gather of the next block.
        """
        # Backward begins at the root, which holds the loss, and continues at the last unit. A unit's experts are
        # inside it, so they follow it in backward as well.
        backwards = [self.blocks[0], *in_backward_order(self.blocks[1:])]
        following = dict(zip(map(first_module, self.blocks), map(first_module, self.blocks[1:]), strict=False))
        previous = dict(zip(map(first_module, backwards), map(first_module, backwards[1:]), strict=False))
        for block in self.blocks:
            forward = _Bracket(self, following.get(first_module(block)))
            backward = _Bracket(self, previous.get(first_module(block)))
            for module in block:
                module.register_forward_pre_hook(forward.before_forward, prepend=True)
                module.register_forward_pre_hook(forward.in_forward)
                module.register_forward_hook(backward.before_backward, prepend=True)
                module.register_forward_hook(backward.in_backward)

    def computed(self) -> None:
        """Records that backward of a block has been computed.

        On a GPU, FSDP2 then makes the compute stream wait for the reduce-scatter of the block before, to reuse its
        memory, and continues with the gradients of this block.
        """
        if self.device.type == "cuda" and self._waiting_since is None:
            self._waiting_since = self.recorder.clock.now()

    def waited(self) -> None:
        """Records that FSDP2's wait has ended, and that it starts to collect the gradients of a block."""
        if self._waiting_since is not None:
            now = self.recorder.clock.now()
            self.recorder.inside(Phase.BACKWARD, self._waiting_since, now, Phase.GRAD_SYNC)
            self._waiting_since = None

    def another(self) -> None:
        """Records that backward of another block begins. If the one before had no gradients, FSDP2 didn't wait."""
        self._waiting_since = None

    def reduced(self) -> None:
        """Records that a reduce-scatter is about to be issued. On a GPU it has its own stream."""
        if self.device.type == "cuda":
            self._reduced_since = self.recorder.clock.now()


class Shards:
    """The shards of some parameters, which are disjoint over a group."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        self.parameters = parameters
        self.pieces_over = group

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yields the pieces of the gradients. See `DataParallelStrategy.gradient_pieces`."""
        for parameter in self.parameters:
            assert isinstance(parameter.grad, DTensor)
            yield parameter, parameter.grad.to_local()


class _Bracket:
    """Hooks before and after FSDP2's hooks, which wait for the parameters of a unit.

    Args:
        prefetch: the block whose all-gather is issued after the wait, or None.
    """

    def __init__(self, strategy: Zero3, prefetch: FSDPModule | None) -> None:
        self.strategy = strategy
        self.prefetch = prefetch
        self._phases: list[AbstractContextManager[object]] = []
        self.before_forward = uncompiled(lambda _module, _inputs: self._open())
        self.in_forward = uncompiled(lambda _module, inputs: self._close_forward(inputs))
        # Hooks of a tensor run in the order in which they were registered, as modules' do.
        self.before_backward = uncompiled(
            lambda _module, _inputs, output: _on_gradient(output, self._open_backward)
        )
        self.in_backward = uncompiled(
            lambda _module, _inputs, output: _on_gradient(output, lambda: self._close(self.prefetch))
        )

    def _close_forward(self, inputs: object) -> None:
        # Experts inside a unit that is recomputed run forward again. The unit behind them has no more use then.
        self._close(None if self.strategy.in_backward else self.prefetch)
        # FSDP2 reduces gradients in a node of its own behind each input, which runs after these hooks.
        _on_gradient(inputs, self.strategy.computed)

    def _open(self) -> None:
        self.strategy.another()
        self._phases.append(self.strategy.recorder.phase(Phase.PARAM_GATHER))
        self._phases[-1].__enter__()

    def _open_backward(self) -> None:
        self.strategy.in_backward = True
        self._open()

    def _close(self, prefetch: FSDPModule | None) -> None:
        self._phases.pop().__exit__(None, None, None)
        if self.strategy.overlap and prefetch is not None:
            prefetch.unshard(async_op=True)


def _on_gradient(values: object, act: Callable[[], None]) -> None:
    """Calls `act` when the gradient of a unit's output or input arrives."""
    if isinstance(values, tuple):
        for value in values:
            _on_gradient(value, act)
    elif isinstance(values, torch.Tensor) and values.requires_grad:
        values.register_hook(lambda _: act())
