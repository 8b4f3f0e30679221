"""Marks of an iteration inside a job: the last gradient, the end of backward, the optimizer's step."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

LEARNED = 2
"""Number of iterations in which the parameter that gets its gradient last is looked for."""


@dataclass(frozen=True)
class IterationTimes:
    """The times of one iteration of this rank in seconds.

    Attributes:
        iteration_s: from one optimizer step's end to the next one's.
        tail_s: from the last gradient to the end of backward, in which DistributedDataParallel waits for its
            collectives. None if it is unknown, as with parameters that are sharded.
    """

    iteration_s: float
    tail_s: float | None


class Marks:
    """Marks iterations by PyTorch's hooks, on a GPU with events that nobody waits for.

    The iteration ends with the step of the optimizer that stepped first.
    """

    def __init__(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._optimizer: int | None = None
        self._order: list[Any] = []
        self._hooks: dict[Any, Any] = {}
        self._learned = 0
        self._on_gpu = False
        self._current: dict[str, Any] = {}
        self._before: Any = None
        self._pending: deque[tuple[Any, Any, Any, Any]] = deque()
        self.ended = 0
        """Number of iterations that have ended."""
        self.on_end = lambda: None
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def take(self) -> list[IterationTimes]:
        """Returns the iterations that the device has finished since the last call."""
        times = []
        while self._pending:
            start, gradient, backward, end = self._pending[0]
            if self._on_gpu and not end.query():
                break
            self._pending.popleft()
            tail = None if gradient is None or backward is None else self._between_s(gradient, backward)
            times.append(IterationTimes(self._between_s(start, end), tail))
        return times

    def close(self) -> None:
        """Removes all hooks."""
        self._handle.remove()
        for handle in self._hooks.values():
            handle.remove()
        self._hooks = {}

    def _between_s(self, first: Any, second: Any) -> float:
        return first.elapsed_time(second) * 1e-3 if self._on_gpu else (second - first) * 1e-9

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.monotonic_ns()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _stepped(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
            self._watch_gradients(optimizer)
        if id(optimizer) != self._optimizer:
            return
        end = self._mark()
        if self._before is not None:
            gradient, backward = self._current.get("gradient"), self._current.get("backward")
            self._pending.append((self._before, gradient, backward, end))
            self.ended += 1
        self._before, self._current = end, {}
        self._learn()
        self.on_end()

    def _watch_gradients(self, optimizer: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._on_gpu = any(p.device.type == "cuda" for p in parameters)
        for parameter in parameters:
            # The gradients of sharded parameters don't tell when collectives end.
            if parameter.requires_grad and type(parameter.data).__name__ != "DTensor":
                hook = parameter.register_post_accumulate_grad_hook(self._accumulated)
                self._hooks[id(parameter)] = hook

    def _accumulated(self, parameter: Any) -> None:
        """Notes that a parameter has its gradient. The end of this backward is marked if it is the last one."""
        from torch.autograd import Variable

        if self._learned < LEARNED:
            self._order.append(id(parameter))
            return
        self._current["gradient"] = self._mark()
        queue = Variable._execution_engine.queue_callback
        # Callbacks run in their order. DistributedDataParallel, which waits for its collectives in its own, asks
        # for it after this hook, and so this one asks again.
        queue(lambda: queue(self._backward_ended))

    def _backward_ended(self) -> None:
        self._current["backward"] = self._mark()

    def _learn(self) -> None:
        """Keeps only the hook of the parameter that gets its gradient last."""
        if self._learned >= LEARNED:
            return
        if self._order:
            self._learned += 1
        if self._learned == LEARNED:
            last = self._order[-1]
            for key, handle in self._hooks.items():
                if key != last:
                    handle.remove()
            self._hooks = {last: self._hooks[last]}
            self._order = []
