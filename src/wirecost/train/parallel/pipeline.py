"""Pipeline parallelism: a rank runs its stages for every micro-batch, in the order of a schedule.

Asynchronous sends pass states to the next stage and gradients back (Narayanan et al. 2021, section 2.2,
arXiv:2104.04473). Before the first state, each stage sends the shapes to the next one. This message isn't
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wirecost.breakdown import Phase
from wirecost.spec import Plan
from wirecost.train.channel import Channel
from wirecost.train.groups import Groups
from wirecost.train.models.base import Batch, State, run_units
from wirecost.train.parallel.base import DataParallelStrategy
from wirecost.train.parallel.schedules import SCHEDULES, Action
from wirecost.train.parallel.stages import Stages
from wirecost.train.recorder import Recorder


class PipelineExecution:
    """Runs a rank's pipeline stages. It implements `Execution`."""

    def __init__(
        self,
        stages: Stages,
        plan: Plan,
        groups: Groups,
        strategy: DataParallelStrategy,
        recorder: Recorder,
        device: torch.device,
    ) -> None:
        self.stages = stages
        self.strategy = strategy
        self.recorder = recorder
        self.rank, self.ranks = groups.pipeline.index, groups.pipeline.size
        self.chunks = plan.virtual_stages
        self.last_stage = self.ranks * self.chunks - 1
        self.schedule = SCHEDULES[plan.pipeline_schedule]
        # There is a channel for each direction, and a further one for the boundaries at which the last rank
        # sends to the first. All messages of a channel between two ranks therefore go in one direction and in
        # the same order on both, and none waits for another direction's messages.
        names = [
            (way, wraps) for way in ("forward", "backward") for wraps in ((False, True)[: min(self.chunks, 2)])
        ]
        self.channels = {name: Channel(groups.channel(), recorder, device) for name in names}
        self._shapes: dict[int, list[tuple[torch.Size, torch.dtype]]] = {}
        self._announced: set[int] = set()
        self._activations: dict[tuple[int, int], tuple[State, State]] = {}
        # A gradient is complete after the last backward of its chunk, or of all chunks if they share parameters.
        self._ends_together = stages.chunks_share

    def run(self, micro_batches: Sequence[Batch], loss_factor: float | torch.Tensor) -> torch.Tensor | None:
        losses: list[torch.Tensor] = []
        actions = self.schedule(self.rank, self.ranks, len(micro_batches), self.chunks)
        for action in actions:
            if action.forward:
                self._forward(action, micro_batches[action.micro_batch], loss_factor, losses)
            else:
                ends_chunk = action.micro_batch == len(micro_batches) - 1
                self._backward(action, last=action is actions[-1] if self._ends_together else ends_chunk)
        for (way, _), channel in self.channels.items():
            channel.finish(Phase.PIPELINE_SEND_FORWARD if way == "forward" else Phase.PIPELINE_SEND_BACKWARD)
        return torch.stack(losses).mean() if losses else None

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        losses = []
        for chunk in range(self.chunks):
            stage = chunk * self.ranks + self.rank
            for batch in micro_batches:
                state = run_units(self.stages.chunk(chunk), self._receive_state(stage) if stage else (), batch)
                if stage < self.last_stage:
                    self._send_state(stage, state)
                else:
                    losses.append(state[0])
        for channel in self.channels.values():
            channel.finish(Phase.PIPELINE_SEND_FORWARD)
        return torch.stack(losses).mean() if losses else None

    def _forward(
        self, action: Action, batch: Batch, loss_factor: float | torch.Tensor, losses: list[torch.Tensor]
    ) -> None:
        stage = action.chunk * self.ranks + self.rank
        state = self._receive_state(stage) if stage else ()
        with self.recorder.phase(Phase.FORWARD):
            result = run_units(self.stages.chunk(action.chunk), state, batch)
            if stage == self.last_stage:
                losses.append(result[0].detach())
                result = (result[0] * loss_factor,)
        if stage < self.last_stage:
            self._send_state(stage, result)
        self._activations[action.chunk, action.micro_batch] = state, result

    def _backward(self, action: Action, *, last: bool) -> None:
        stage = action.chunk * self.ranks + self.rank
        state, result = self._activations.pop((action.chunk, action.micro_batch))
        gradients: list[torch.Tensor] | None = None
        if stage < self.last_stage:
            gradients = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in result]
            channel = self._channel("backward", stage)
            for gradient in gradients:
                channel.receive(gradient, self._next, Phase.PIPELINE_RECV_BACKWARD)
        with self.strategy.micro_batch(last=last), self.recorder.phase(Phase.BACKWARD):
            torch.autograd.backward(result, gradients)
        if stage:
            channel = self._channel("backward", stage - 1)
            for tensor in state:
                gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                channel.send(gradient, self._previous, Phase.PIPELINE_SEND_BACKWARD)

    def _receive_state(self, stage: int) -> State:
        channel = self._channel("forward", stage - 1)
        with self.recorder.phase(Phase.PIPELINE_RECV_FORWARD):
            if stage not in self._shapes:
                self._shapes[stage] = channel.receive_shapes(self._previous)
            state = tuple(
                torch.empty(shape, dtype=dtype, device=channel.device) for shape, dtype in self._shapes[stage]
            )
            for tensor in state:
                channel.receive(tensor, self._previous)
        return tuple(tensor.requires_grad_() for tensor in state)

    def _send_state(self, stage: int, state: State) -> None:
        channel = self._channel("forward", stage)
        with self.recorder.phase(Phase.PIPELINE_SEND_FORWARD):
            if stage not in self._announced:
                self._announced.add(stage)
                channel.send_shapes(state, self._next)
            for tensor in state:
                channel.send(tensor.detach(), self._next)

    def _channel(self, way: str, boundary: int) -> Channel:
        """Returns the channel for the boundary between the stages `boundary` and `boundary` + 1."""
        return self.channels[way, boundary % self.ranks == self.ranks - 1]

    @property
    def _next(self) -> int:
        return (self.rank + 1) % self.ranks

    @property
    def _previous(self) -> int:
        return (self.rank - 1) % self.ranks
