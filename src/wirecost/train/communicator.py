"""Collectives that are recorded: the one door through which the engine communicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.groups import Group
from wirecost.train.recorder import Recorder


class Pending:
    """A collective under way. `wait` makes the current stream (on a CPU: the caller) wait for its end."""

    def __init__(self, future: torch.futures.Future[Any] | None) -> None:
        self.future = future

    def wait(self) -> None:
        if self.future is not None:
            self.future.wait()
            self.future = None


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
        """`shard` becomes this rank's part of the sum of `whole` (n x shard's elements) over the group."""
        if self.size == 1:
            shard.view(-1).copy_(whole.reshape(-1))
            return DONE
        return self._run(
            "reduce_scatter",
            whole.nbytes,
            lambda: dist.reduce_scatter_tensor(
                shard, whole, dist.ReduceOp.SUM, self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

    def _run(self, op: str, size_bytes: int, issue: Callable[[], Any], phase: Phase | None) -> Pending:
        recorder, group = self.recorder, self.group
        timed: AbstractContextManager[None] = recorder.phase(phase) if phase else nullcontext()
        with timed:
            call = recorder.launch(op, group.name, group.ranks, size_bytes)
            work = issue()
            if work is None:
                recorder.ended(call)
                return DONE

        def ended(future: torch.futures.Future[Any]) -> Any:
            recorder.ended(call)
            return future.value()

        return Pending(work.get_future().then(ended))


def wait_all(pending: Sequence[Pending], recorder: Recorder, phase: Phase) -> None:
    """Waits for collectives under way; the time goes to `phase`, as exposed communication."""
    if pending:
        with recorder.phase(phase):
            for one in pending:
                one.wait()
