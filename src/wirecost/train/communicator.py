"""Recorded collectives and messages. The engine communicates only through this module."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.groups import Group
from wirecost.train.pending import DONE, Pending
from wirecost.train.recorder import Recorder, Span


class Communicator:
    """Collectives over one group. Each call is recorded with its operation, group and bytes.

    Sizes are the total S of docs/explanation/measurement.md: the output of an all-gather, the input of a
    reduce-scatter. In a group of one rank nothing moves and nothing is recorded.

    With `phase`, the time in the call counts for that phase of the iteration. With `asynchronous`, a call returns
    before the collective has ended. The caller then waits for the returned `Pending`.

    Attributes:
        collectives: has the functions of `torch.distributed` that reduce, gather and scatter.
    """

    collectives: Any = dist

    def __init__(self, group: Group, recorder: Recorder) -> None:
        self.group = group
        self.recorder = recorder

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.group.size

    def all_reduce(
        self,
        tensor: torch.Tensor,
        *,
        op: Any = dist.ReduceOp.SUM,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """Reduces `tensor` over the group with `op`, in place."""
        if self.size == 1:
            return DONE
        return self._run(
            "all_reduce",
            tensor.nbytes,
            lambda: self.collectives.all_reduce(tensor, op, self.group.process_group, async_op=asynchronous),
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
        """Gathers the shards of all n ranks.

        Args:
            output: receives the shards in the group's order, (n x elements,).
            shard: this rank's shard, with `elements` elements.
        """
        if self.size == 1:
            output.view(-1).copy_(shard.reshape(-1))
            return DONE
        return self._run(
            "all_gather",
            output.nbytes,
            lambda: self.collectives.all_gather_into_tensor(
                output, shard, self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

    def reduce_scatter(
        self,
        shard: torch.Tensor,
        full: torch.Tensor,
        *,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """Sums `full` over the group's n ranks, and keeps this rank's part of the sum.

        Gloo has no reduce-scatter: it all-reduces and keeps a part, which moves twice the bytes. On a CPU,
        every rank therefore sends each other rank its part, which moves as many bytes as a ring, and sums in
        FP32.

        Args:
            shard: receives this rank's part, with `elements` elements. It may be a view of that part of `full`.
            full: this rank's summand, (n x elements,).
        """
        if self.size == 1:
            shard.view(-1).copy_(full.reshape(-1))
            return DONE
        if full.device.type == "cpu":
            return self._exchange_and_sum(shard, full, phase, asynchronous)
        return self._run(
            "reduce_scatter",
            full.nbytes,
            lambda: self.collectives.reduce_scatter_tensor(
                shard, full, dist.ReduceOp.SUM, self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

    def all_to_all(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        *,
        sent: list[int] | None = None,
        received: list[int] | None = None,
        phase: Phase | None = None,
        asynchronous: bool = False,
    ) -> Pending:
        """Exchanges parts between all n ranks.

        The recorded size of uneven parts is that of equal ones with which the rank sends as many bytes to the
        other ranks: n / (n - 1) times these bytes. It may differ over the ranks.

        Args:
            output: receives the parts that the ranks send to this one, in the group's order.
            source: this rank's parts. Part i goes to rank i of the group.
            sent, received: the sizes of the parts of `source` and `output` in their first dimension. None means
                equal parts.
        """
        if self.size == 1:
            output.view(-1).copy_(source.reshape(-1))
            return DONE
        size_bytes = source.nbytes
        if sent is not None:
            row_bytes = source.element_size() * math.prod(source.shape[1:])
            others = sum(sent) - sent[self.group.index]
            size_bytes = round(others * row_bytes * self.size / (self.size - 1))
        return self._run(
            "all_to_all",
            size_bytes,
            lambda: dist.all_to_all_single(
                output, source, received, sent, self.group.process_group, async_op=asynchronous
            ),
            phase,
        )

    def _exchange_and_sum(
        self, shard: torch.Tensor, full: torch.Tensor, phase: Phase | None, asynchronous: bool
    ) -> Pending:
        received = torch.empty_like(full).view(-1)
        exchange = self._run(
            "reduce_scatter",
            full.nbytes,
            lambda: dist.all_to_all_single(
                received, full.reshape(-1), group=self.group.process_group, async_op=asynchronous
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
            # Marks take time on the host. The call shares the marks of its phase, if it has one.
            call = recorder.launch(op, group.name, group.ranks, size_bytes, span.start if span else None)
            work = issue()
            if work is None and span is None:
                recorder.ended(call)
        if work is None:
            if span is not None:
                call.end = span.end
            return DONE
        return Pending(recorder.ends_with(call, work), work=work)
