"""The ideal iteration in which no rank, stage or operation is slower than the others, and what each costs.

Definitions of the OSDI 2025 study of stragglers (arXiv:2505.05713): the ideal gives each operation its kind's mean
duration (computing) or median transfer (communication) over ranks, stages and steps; the slowdown is the mean step
without launch delays over the mean ideal step; the part of a rank, stage or kind is the slowdown of the ideal in
which its operations alone keep their own durations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wirecost.errors import WirecostError
from wirecost.whatif.operation_table import POINT_TO_POINT, Float, Operations, read_operations
from wirecost.whatif.pipeline_order import Order, order_of

_COMMUNICATION = frozenset((
    *POINT_TO_POINT, "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce",
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad",
))  # fmt: skip
_NEGATIVE_S = -1e-2  # transfers below are errors of clocks and count as 0


@dataclass(frozen=True)
class Stragglers:
    """What stragglers cost. Step times in seconds by step; slowdowns are ratios of mean step times, 1 costs
    nothing."""

    recorded_s: dict[int, float]
    step_s: dict[int, float]
    ideal_s: dict[int, float]
    slowdown: float
    by_step: dict[int, float]
    by_dp_rank: dict[int, float]
    by_stage: dict[int, float]
    by_operation: dict[str, float]


class _Simulator:
    """Runs a table's operations in order with given durations, all steps and data-parallel ranks at once."""

    def __init__(self, operations: Operations, order: Order) -> None:
        self._operations = operations
        group_of: dict[int, int] = {}
        for number, (members, _) in enumerate(order.together):
            for member in members:
                group_of[member] = number
        self.joined = np.zeros(len(operations.names), dtype=bool)
        self.joined[list(group_of)] = True
        self._order, self._group_of = order, group_of
        self._plan = self._planned()

    def _planned(self) -> list[int]:
        """Returns the operations in an order that respects everything.

        Raises:
            WirecostError: if operations wait for each other in a circle.
        """
        count = len(self._operations.names)
        after = self._order.after
        waiting = [len(after.get(i, ())) for i in range(count)]
        followers: list[list[int]] = [[] for _ in range(count)]
        for i, before in after.items():
            for b in before:
                followers[b].append(i)
        missing = [len(members) for members, _ in self._order.together]
        ready = deque(i for i in range(count) if waiting[i] == 0)
        plan = []
        while ready:
            i = ready.popleft()
            plan.append(i)
            group = self._group_of.get(i)
            if group is None:
                ended: Sequence[int] = (i,)
            else:
                missing[group] -= 1
                ended = self._order.together[group][0] if missing[group] == 0 else ()
            for e in ended:
                for f in followers[e]:
                    waiting[f] -= 1
                    if waiting[f] == 0:
                        ready.append(f)
        if len(plan) < count:
            stuck = next(i for i in range(count) if i not in set(plan))
            kind, place, stage = self._operations.names[stuck]
            raise WirecostError(
                f"the operations wait for each other in a circle at {kind} {place} of stage {stage}"
            )
        return plan

    def run(self, duration: Float, transfer: Float) -> tuple[Float, Float]:
        """Returns the starts and ends in seconds, shape (operations, steps x ranks)."""
        operations, after = self._operations, self._order.after
        start = np.zeros(duration.shape)
        end = np.zeros(duration.shape)
        missing = [len(members) for members, _ in self._order.together]
        for i in self._plan:
            before = after.get(i, ())
            if before:
                np.copyto(start[i], end[before[0]])
                for b in before[1:]:
                    np.maximum(start[i], end[b], out=start[i])
            group = self._group_of.get(i)
            if group is None:
                np.add(start[i], duration[i], out=end[i])
                continue
            missing[group] -= 1
            if missing[group]:
                continue
            members, over_ranks = self._order.together[group]
            begun = start[members].max(axis=0)
            if over_ranks:
                begun = np.repeat(begun.reshape(operations.shape).max(axis=1), operations.dp)
            for m in members:
                np.add(begun, transfer[m], out=end[m])
        return start, end

    def steps(self, times: Float) -> Float:
        """Returns the latest of some operations' times in each step, shape (steps,)."""
        return times.max(axis=0).reshape(self._operations.shape).max(axis=1)


def stragglers(path: Path) -> Stragglers:
    """Returns what stragglers cost in a job, from its Parquet table of operations.

    Raises:
        WirecostError: if the table can't be read or isn't whole.
    """
    return analysed(read_operations(path))


def analysed(operations: Operations) -> Stragglers:
    """Returns what stragglers cost in a job."""
    order = order_of(operations)
    simulator = _Simulator(operations, order)
    kinds = np.array([kind for kind, _, _ in operations.names])
    transfer = _transfers(operations, order)
    duration = operations.duration.astype(np.float64)
    start, end = simulator.run(duration, transfer)
    step = simulator.steps(end) - start.reshape(-1, *operations.shape).min(axis=(0, 2))
    ideal_duration, ideal_transfer = duration.copy(), transfer.copy()
    whole = end - start
    for kind in np.unique(kinds):
        mine = kinds == kind
        typical: Callable = np.median if kind in _COMMUNICATION else np.mean
        ideal_duration[mine] = typical(whole[mine])
        ideal_transfer[mine] = typical(transfer[mine])
    last = [i for i, kind in enumerate(kinds) if kind == "optimizer"] or list(range(len(kinds)))

    def length(durations: Float, transfers: Float) -> Float:
        return simulator.steps(simulator.run(durations, transfers)[1][last])

    ideal = length(ideal_duration, ideal_transfer)

    def keeping(mask: np.ndarray) -> float:
        durations = np.where(mask, duration, ideal_duration)
        transfers = np.where(mask, transfer, ideal_transfer)
        return float(length(durations, transfers).mean() / ideal.mean())

    columns = np.arange(duration.shape[1]) % operations.dp
    stage_of = np.array([stage for _, _, stage in operations.names])
    shown = np.array([_shown(kind) for kind in kinds])
    recorded = (operations.end.reshape(-1, *operations.shape).max(axis=(0, 2))
                - operations.start.reshape(-1, *operations.shape).min(axis=(0, 2)))  # fmt: skip
    steps = operations.steps
    return Stragglers(
        recorded_s=_by(steps, recorded),
        step_s=_by(steps, step),
        ideal_s=_by(steps, ideal),
        slowdown=float(step.mean() / ideal.mean()),
        by_step=_by(steps, step / ideal),
        by_dp_rank=_sorted({r: keeping((columns == r)[None, :]) for r in range(operations.dp)}),
        by_stage=_sorted({s: keeping((stage_of == s)[:, None]) for s in range(operations.stages)}),
        by_operation=_sorted({str(k): keeping((shown == k)[:, None]) for k in np.unique(shown)}),
    )


def _transfers(operations: Operations, order: Order) -> Float:
    """Returns the time from the last participant's start to the end of each operation that ends with others."""
    found = np.zeros(operations.duration.shape, dtype=np.float32)
    for members, over_ranks in order.together:
        begun = operations.start[members].max(axis=0)
        if over_ranks:
            begun = np.repeat(begun.reshape(operations.shape).max(axis=1), operations.dp)
        for m in members:
            found[m] = operations.end[m] - begun
    found[found <= np.float32(_NEGATIVE_S)] = 0
    return found.astype(np.float64)


def _shown(kind: str) -> str:
    if kind in POINT_TO_POINT:
        return f"{kind.split('-', maxsplit=1)[0]}-pp-comm"
    return kind


def _by(steps: list[int], values: np.ndarray) -> dict[int, float]:
    return {step: float(value) for step, value in zip(steps, values, strict=True)}


def _sorted(costs: dict) -> dict:
    return dict(sorted(costs.items(), key=lambda item: -item[1]))
