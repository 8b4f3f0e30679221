"""Recorded point-to-point messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.groups import Group
from wirecost.train.pending import Pending
from wirecost.train.recorder import Call, Recorder, Span


class Channel:
    """Point-to-point messages within a process group of their own (`Groups.channel`).

    Both ends record each message, as `send` or `recv`, with the sender and the receiver as `ranks`. Messages
    from one rank to another keep their order. Sends are asynchronous. A receive makes the current stream (on a
    CPU: the caller) wait.
    """

    DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    HEADER = 16  # integers: the number of tensors, and for each its dtype, its number of dimensions and its shape

    def __init__(self, group: Group, recorder: Recorder, device: torch.device) -> None:
        self.group = group
        self.recorder = recorder
        self.device = device
        self._sends: deque[tuple[Pending, torch.Tensor]] = deque()
        # Gloo's sends have no future, so a thread waits for their ends.
        self._watcher = ThreadPoolExecutor(1) if device.type == "cpu" else None

    def send(self, tensor: torch.Tensor, to: int, phase: Phase | None = None) -> None:
        """Sends a tensor to the rank with index `to` in the group.

        At most as many sends are pending as the group has ranks. A further one waits for the oldest. `finish`
        waits for all of them.
        """
        with self._timed(phase):
            tensor = tensor.contiguous()
            while len(self._sends) >= self.group.size:
                self._sends.popleft()[0].wait()
            ranks = (self.group.ranks[self.group.index], self.group.ranks[to])
            call = self.recorder.launch("send", self.group.name, ranks, tensor.nbytes)
            work: Any = dist.isend(tensor, ranks[1], self.group.process_group)
            self._sends.append((self._pending(work, call), tensor))

    def receive(self, tensor: torch.Tensor, source: int, phase: Phase | None = None) -> None:
        """Receives into a contiguous tensor from the rank with index `source` in the group."""
        with self._timed(phase):
            ranks = (self.group.ranks[source], self.group.ranks[self.group.index])
            call = self.recorder.launch("recv", self.group.name, ranks, tensor.nbytes)
            work: Any = dist.irecv(tensor, ranks[0], self.group.process_group)
            if self._watcher is not None:
                work.wait()
                self.recorder.ended(call)
            else:
                self._pending(work, call).wait()

    def finish(self, phase: Phase) -> None:
        """Waits for all sends. The time counts for `phase`."""
        if self._sends:
            with self.recorder.phase(phase):
                while self._sends:
                    self._sends.popleft()[0].wait()

    def send_shapes(self, tensors: Sequence[torch.Tensor], to: int) -> None:
        """Sends the shapes and dtypes of tensors that follow. This message isn't recorded."""
        header = [len(tensors)]
        for tensor in tensors:
            header += [self.DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
        header += [0] * (self.HEADER - len(header))
        dist.send(torch.tensor(header, device=self.device), self.group.ranks[to], self.group.process_group)

    def receive_shapes(self, source: int) -> list[tuple[torch.Size, torch.dtype]]:
        """Receives the shapes and dtypes that `send_shapes` sends."""
        header = torch.empty(self.HEADER, dtype=torch.int64, device=self.device)
        dist.recv(header, self.group.ranks[source], self.group.process_group)
        numbers = iter(header.tolist())
        shapes = []
        for _ in range(next(numbers)):
            dtype, dimensions = self.DTYPES[next(numbers)], next(numbers)
            shapes.append((torch.Size([next(numbers) for _ in range(dimensions)]), dtype))
        return shapes

    def _timed(self, phase: Phase | None) -> AbstractContextManager[Span | None]:
        return self.recorder.phase(phase) if phase else nullcontext()

    def _pending(self, work: Any, call: Call) -> Pending:
        if self._watcher is None:
            return Pending(self.recorder.ends_with(call, work), work=work)
        future: torch.futures.Future[Any] = torch.futures.Future()

        def watch() -> None:
            try:
                work.wait()
                self.recorder.ended(call)
                future.set_result(None)
            except RuntimeError as error:
                future.set_exception(error)

        self._watcher.submit(watch)
        return Pending(future)
