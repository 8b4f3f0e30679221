"""Collectives that are recorded: the one door through which the engine communicates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.groups import Group
from wirecost.train.recorder import Call, Recorder, Span


class Pending:
    """A collective under way. `wait` makes the current stream (on a CPU: the caller) wait for its end, then
    does the local work that is left, if any.

    Args:
        future: ends after the collective was noted down as ended.
        work: the collective. A stream waits for it, not for the future: that makes one wait only where tensors are
            in its value.
    """

    def __init__(
        self,
        future: torch.futures.Future[Any] | None,
        after: Callable[[], None] | None = None,
        work: Any = None,
    ) -> None:
        self.future = future
        self.after = after
        self.work = work

    def wait(self) -> None:
        if self.future is not None:
            self.future.wait()
            self.future = None
        if self.work is not None:
            self.work.wait()
            self.work = None
        if self.after is not None:
            self.after()
            self.after = None


DONE = Pending(None)


class Communicator:
    """Collectives over one group, each noted down with its operation, group and bytes.

    Sizes are the total S of docs/measurement.md: the output of an all-gather, the input of a reduce-scatter.
    In a group of one rank nothing moves and nothing is recorded. With `phase`, the time that the caller spends
    in the call (or waits on it) goes to that phase of the iteration. `Pending` results come from
    `asynchronous=True`.
    """

    def __init__(self, group: Group, recorder: Recorder) -> None:
        self.group = group
        self.recorder = recorder

    @property
    def size(self) -> int:
        return self.group.size

    def all_reduce(
        self,
        tensor: torch.Tensor,
        *,
        op: Any = dist.ReduceOp.SUM,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """Sums (or `op`) `tensor` over the group, in place."""
        if self.size == 1:
            return DONE
        return self._run(
            "all_reduce",
            tensor.nbytes,
            lambda: dist.all_reduce(tensor, op, self.group.process_group, async_op=asynchronous),
            phase,
        )

    def all_gather(
        self,
        output: torch.Tensor,
        shard: torch.Tensor,
        *,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """`output` (n x shard's elements) becomes every rank's `shard`, in the group's order."""
        if self.size == 1:
            output.view(-1).copy_(shard.reshape(-1))
            return DONE
        return self._run(
            "all_gather",
            output.nbytes,
            lambda: dist.all_gather_into_tensor(output, shard, self.group.process_group, async_op=asynchronous),
            phase,
        )

    def reduce_scatter(
        self,
        shard: torch.Tensor,
        whole: torch.Tensor,
        *,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """`shard` becomes this rank's part of the sum of `whole` (n x shard's elements) over the group; it may be
        that part of `whole`.

        Gloo has no reduce-scatter (it all-reduces and keeps a part, twice the bytes), so on a CPU every rank
        sends each of the others its part, as many bytes as a ring does, and sums in FP32.
        """
        if self.size == 1:
            shard.view(-1).copy_(whole.reshape(-1))
            return DONE
        if whole.device.type == "cpu":
            return self._exchange_and_sum(shard, whole, phase, asynchronous)
        return self._run(
            "reduce_scatter",
            whole.nbytes,
            lambda: dist.reduce_scatter_tensor(
                shard, whole, dist.ReduceOp.SUM, self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

    def all_to_all(
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        *,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """`output` becomes, in the group's order, every rank's part of its `whole` that is meant for this one;
        both have n equal parts."""
        if self.size == 1:
            output.view(-1).copy_(whole.reshape(-1))
            return DONE
        return self._run(
            "all_to_all",
            whole.nbytes,
            lambda: dist.all_to_all_single(output, whole, group=self.group.process_group, async_op=asynchronous),
            phase,
        )

    def _exchange_and_sum(
        self, shard: torch.Tensor, whole: torch.Tensor, phase: Phase | None, asynchronous: bool
    ) -> Pending:
        received = torch.empty_like(whole).view(-1)
        exchange = self._run(
            "reduce_scatter",
            whole.nbytes,
            lambda: dist.all_to_all_single(
                received, whole.reshape(-1), group=self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

        def add() -> None:
            shard.view(-1).copy_(received.view(self.size, -1).sum(0, dtype=torch.float32))

        pending = Pending(exchange.future, add, exchange.work)
        if not asynchronous:
            pending.wait()
            return DONE
        return pending

    def _run(self, op: str, size_bytes: int, issue: Callable[[], Any], phase: Phase | None) -> Pending:
        recorder, group = self.recorder, self.group
        timed: AbstractContextManager[Span | None] = recorder.phase(phase) if phase else nullcontext()
        with timed as span:
            # Marks take the host's time: the call's are the phase's, where it has one.
            call = recorder.launch(op, group.name, group.ranks, size_bytes, span.start if span else None)
            work = issue()
            if work is None and span is None:
                recorder.ended(call)
        if work is None:
            if span is not None:
                call.end = span.end
            return DONE
        return Pending(recorder.ends_with(call, work), work=work)


class Channel:
    """Point-to-point messages within a process group of its own (`Groups.channel`), each noted down on both ends
    as `send` or `recv` with its sender and receiver as `ranks`. From one rank to another they keep their order.

    Sends are asynchronous; a receive makes the current stream (on a CPU: the caller) wait.
    """

    DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    HEADER = 16  # integers: how many tensors, and of each its type, how many dimensions, and those

    def __init__(self, group: Group, recorder: Recorder, device: torch.device) -> None:
        self.group = group
        self.recorder = recorder
        self.device = device
        self._sends: deque[tuple[Pending, torch.Tensor]] = deque()
        # Gloo's sends have no future: a thread sees them end.
        self._watcher = ThreadPoolExecutor(1) if device.type == "cpu" else None

    def send(self, tensor: torch.Tensor, to: int, phase: Phase | None = None) -> None:
        """Sends to the rank at place `to` of the group. At most as many sends as the group has ranks are under
        way: another one waits for the oldest. `finish` waits for all."""
        with self._timed(phase):
            tensor = tensor.contiguous()
            while len(self._sends) >= self.group.size:
                self._sends.popleft()[0].wait()
            ranks = (self.group.ranks[self.group.index], self.group.ranks[to])
            call = self.recorder.launch("send", self.group.name, ranks, tensor.nbytes)
            work: Any = dist.isend(tensor, ranks[1], self.group.process_group)
            self._sends.append((self._pending(work, call), tensor))

    def receive(self, tensor: torch.Tensor, source: int, phase: Phase | None = None) -> None:
        """Receives into a contiguous tensor from the rank at place `source` of the group."""
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
        """Waits for all sends; the time goes to `phase`."""
        if self._sends:
            with self.recorder.phase(phase):
                while self._sends:
                    self._sends.popleft()[0].wait()

    def send_shapes(self, tensors: Sequence[torch.Tensor], to: int) -> None:
        """Tells a rank what it will receive; not recorded."""
        header = [len(tensors)]
        for tensor in tensors:
            header += [self.DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
        header += [0] * (self.HEADER - len(header))
        dist.send(torch.tensor(header, device=self.device), self.group.ranks[to], self.group.process_group)

    def receive_shapes(self, source: int) -> list[tuple[torch.Size, torch.dtype]]:
        """The other end of `send_shapes`."""
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


def wait_all(pending: Sequence[Pending], recorder: Recorder, phase: Phase) -> None:
    """Waits for collectives under way; the time goes to `phase`, as exposed communication."""
    if pending:
        with recorder.phase(phase):
            for one in pending:
                one.wait()
