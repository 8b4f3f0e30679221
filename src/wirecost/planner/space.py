"""Enumerates the legal plans of a question: degrees and batches as arrays, and the modes that each can run in.

A plan is a row of degrees and micro-batches (TP, PP, chunks, CP, EP, DP, micro-batch) in a mode (ZeRO stage,
sharding group, overlap, sequence parallelism, recomputation, order of ranks, schedule). Legal is what
`wirecost.costmodel.setup.setup` accepts and the stack can do, with these differences: stages are interleaved only
where the chunks are equal (or embedding and loss each replace a layer, as in Llama 3), tensor parallelism divides
heads for keys and values or is a multiple of them, sequence parallelism needs a sequence that divides, sharding
inside nodes needs context-parallel ranks inside nodes, data parallelism comes last only without context
parallelism, and of plans that are the same to the formulas one is kept. GPipe is left out: it takes the time of
1F1B and more memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, product

import numpy as np
import numpy.typing as npt

from wirecost.costmodel.buckets import bucket_arrays
from wirecost.costmodel.dataparallel import usual_bucket_bytes
from wirecost.costmodel.inputs import (
    RECOMPUTE_FULL,
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    Layout,
)
from wirecost.costmodel.numbers import Number
from wirecost.costmodel.setup import ZERO_BUBBLE
from wirecost.errors import SpecError
from wirecost.planner.capabilities import Capabilities
from wirecost.planner.choices import RECOMPUTES, Choice
from wirecost.planner.constraints import holding
from wirecost.planner.question import Question
from wirecost.planner.schedules import MEASURED_SCHEDULES, SCHEDULES
from wirecost.spec import Plan, Workload
from wirecost.spec.plan import PipelineSchedule

DDP_BUCKET_BYTES = float(Plan.model_fields["bucket_bytes"].default)
MOST_ROWS = 2_000_000
"""Most sets of degrees and micro-batches of a search, for its memory and time."""
Columns = dict[str, npt.NDArray[np.float64]]
"""The degrees and batches of all rows, each an array of shape (rows,)."""
_WORD_OF = {value: word for word, value in RECOMPUTES.items()}
_SCHEDULE_OF = {value: schedule for schedule, value in SCHEDULES.items()}
_ZERO_BUBBLE = {SCHEDULES[schedule]: kind for schedule, kind in ZERO_BUBBLE.items()}


@dataclass(frozen=True)
class Mode:
    """The choices of a plan besides its degrees and batches, as the formulas read them."""

    zero: float = 0.0
    node_sharding: float = 0.0
    overlap: float = 0.0
    sp: float = 0.0
    recompute: float = 0.0
    pp_first: float = 0.0
    dp_last: float = 0.0
    schedule: float = 0.0  # of SCHEDULES; 0: 1F1B, or interleaved where a row has several chunks

    @property
    def values(self) -> dict[str, float]:
        """The values of the quantities that constraints name."""
        return {
            "zero": self.zero,
            "sharding_group": self.node_sharding,
            "overlap": self.overlap,
            "sp": self.sp,
            "recompute": self.recompute,
            "placement": self.pp_first + 2 * self.dp_last,
        }

    @property
    def without_order(self) -> Mode:
        """The mode of the same memory: overlap doesn't change it, and the order of ranks only where shards stay
        inside nodes."""
        if self.node_sharding:
            return replace(self, overlap=0.0)
        return replace(self, overlap=0.0, pp_first=0.0, dp_last=0.0)


@dataclass(frozen=True)
class Space:
    """The legal plans of a question.

    Attributes:
        question: the question.
        columns: degrees and batches of all rows.
        modes: the modes of each of the question's stacks.
    """

    question: Question
    columns: Columns
    modes: tuple[tuple[Mode, ...], ...]

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def rows_of(self, mode: Mode, stack: int) -> npt.NDArray[np.int64]:
        """Returns the rows that can run in a mode of a stack."""
        c, question = self.columns, self.question
        per_node = question.cluster.gpus_per_node
        several = c["dp"] * c["cp"] > 1
        mask = self._offered(mode, question.capabilities(stack))
        if mode.zero or mode.overlap:
            mask = mask & several
        if mode.node_sharding:
            inner = c["pp"] if mode.pp_first else c["tp"] * (c["pp"] if mode.dp_last else 1)
            inside = np.floor(per_node / inner)
            mask = mask & (inside > 1) & (inside < c["dp"] * c["cp"]) & (c["dp"] > 1) & (inside % c["cp"] == 0)
            mask = mask & ((c["dp"] * c["cp"]) % np.maximum(inside, 1) == 0)
        if mode.sp:
            length = question.workload.sequence_length
            mask = mask & (c["tp"] > 1) & (length % (c["tp"] * c["cp"]) == 0)
        if mode.pp_first:
            mask = mask & (c["pp"] > 1) & (c["pp"] < question.gpus) & (question.gpus > per_node)
        if mode.dp_last:
            mask = mask & (c["pp"] > 1) & (c["dp"] > 1) & (c["cp"] == 1) & (question.gpus > per_node)
        if self._limits_schedules:
            schedule = self.schedules(slice(None), mode)
            mask = mask & holding(question.constraints, {"schedule": schedule}, len(self))
            allowed = np.isin(schedule, [SCHEDULES[each] for each in question.schedules])
            mask = mask & (allowed | (c["pp"] == 1))
        if mode.schedule:
            mask = mask & (c["pp"] > 1) & (c["vpp"] == 1)
        if mode.schedule == SCHEDULES[PipelineSchedule.DUALPIPE]:
            mask = mask & (c["pp"] % 2 == 0)
        return np.flatnonzero(mask)

    @cached_property
    def _limits_schedules(self) -> bool:
        """Whether a constraint names schedules, or 1F1B or interleaving is not allowed."""
        named = any(each.key == "schedule" for each in self.question.constraints)
        return named or not set(MEASURED_SCHEDULES) <= set(self.question.schedules)

    def schedules(self, rows: npt.NDArray[np.int64] | slice, mode: Mode) -> npt.NDArray[np.float64]:
        """Returns the numbers of the pipeline schedules of rows in a mode."""
        if mode.schedule:
            return np.full(len(self.columns["vpp"][rows]), mode.schedule)
        several = self.columns["vpp"][rows] > 1
        return np.where(several, SCHEDULES[PipelineSchedule.INTERLEAVED], 0.0)

    def _offered(self, mode: Mode, can: Capabilities) -> npt.NDArray[np.bool_]:
        """Returns the rows that a stack can run in a mode."""
        c = self.columns
        mask = np.ones(len(self), dtype=bool)
        kinds = (("tp", can.tensor), ("pp", can.pipeline), ("vpp", can.interleaved), ("cp", can.context))
        for key, offered in (*kinds, ("ep", can.expert)):
            if not offered:
                mask &= c[key] == 1
        if mode.zero not in can.zero_with_pipeline:
            mask &= c["pp"] == 1
        if can.experts_need_sp and self.question.workload.mixture_of_experts and not mode.sp:
            mask &= c["tp"] == 1
        return mask

    def layout(self, rows: npt.NDArray[np.int64], mode: Mode, stack: int) -> Layout:
        """Returns rows in a mode of a stack as the formulas read them."""
        c = self.columns
        bucket_bytes = usual_bucket_bytes(self.question.stacks[stack], c["dp"][rows], DDP_BUCKET_BYTES)
        mean, last = self._buckets(rows, mode, stack, bucket_bytes)
        return Layout(
            tensor=c["tp"][rows],
            pipeline=c["pp"][rows],
            data=c["dp"][rows],
            micro_batch=c["mb"][rows],
            accumulation=c["accumulation"][rows],
            virtual=c["vpp"][rows],
            context=c["cp"][rows],
            expert=c["ep"][rows],
            sharding=mode.zero,
            bucketed=mode.overlap,
            node_sharding=mode.node_sharding,
            sequence_parallel=mode.sp,
            recompute=mode.recompute,
            bucket_bytes=bucket_bytes,
            mean_bucket_bytes=mean,
            last_bucket_bytes=last,
            pipeline_first=mode.pp_first,
            data_last=mode.dp_last,
            zero_bubble=_ZERO_BUBBLE.get(mode.schedule, 0.0),
            dualpipe=float(mode.schedule == SCHEDULES[PipelineSchedule.DUALPIPE]),
        )

    def _buckets(
        self, rows: npt.NDArray[np.int64], mode: Mode, stack: int, bucket_bytes: Number
    ) -> tuple[Number, Number]:
        """Returns the mean and the last size of buckets of whole parameters; 0 for a stack without them."""
        whole = self.question.stacks[stack].data_parallel.buckets == "whole"
        if not whole or not (mode.zero == 2 or (mode.overlap and mode.zero < 2)):
            return 0.0, 0.0
        degrees = (self.columns["tp"][rows], self.columns["pp"][rows], self.columns["vpp"][rows])
        workload, element_bytes = self.question.workload, self.question.precision.bytes_per_element
        return bucket_arrays(workload, degrees, element_bytes, bucket_bytes)

    def choice(self, row: int, mode: Mode) -> Choice:
        """Returns a row in a mode as a choice."""
        degrees = {key: int(self.columns[key][row]) for key in ("tp", "pp", "vpp", "cp", "ep", "dp", "mb")}
        return Choice(
            **degrees,
            zero=int(mode.zero),
            node_sharding=bool(mode.node_sharding),
            overlap=bool(mode.overlap),
            sp=bool(mode.sp),
            recompute=_WORD_OF[mode.recompute],
            pp_first=bool(mode.pp_first),
            dp_last=bool(mode.dp_last),
            schedule=_SCHEDULE_OF[mode.schedule] if mode.schedule else None,
        )


def space_of(question: Question) -> Space:
    """Returns the legal plans of a question that meet its constraints on choices."""
    listed = list(islice(_rows(question), MOST_ROWS + 1))
    if len(listed) > MOST_ROWS:
        raise SpecError(
            f"more than {MOST_ROWS:,} sets of degrees and micro-batches are legal; fix some, as with "
            "--constraint 'tp<=8' 'cp=1', or choose a batch with fewer divisors"
        )
    rows = np.array(listed, dtype=np.float64).reshape(-1, 8)
    names = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb", "accumulation")
    columns = {name: rows[:, place].copy() for place, name in enumerate(names)}
    kept = holding(question.constraints, columns, len(rows))
    columns = {name: values[kept] for name, values in columns.items()}
    modes = tuple(tuple(_modes(question, place)) for place in range(len(question.stacks)))
    return Space(question, columns, modes)


def _rows(question: Question) -> Iterator[tuple[int, ...]]:
    """Yields degrees and batches: TP, PP, chunks, CP, EP, DP, micro-batch, accumulation."""
    workload, gpus, batch = question.workload, question.gpus, question.global_batch
    experts = workload.mixture_of_experts.experts if workload.mixture_of_experts else 1
    for tp in divisors(gpus):
        if not divides_layers(workload, tp):
            continue
        for pp, cp in product(divisors(gpus // tp), repeat=2):
            if pp > question.layers or gpus % (tp * pp * cp):
                continue
            dp = gpus // (tp * pp * cp)
            if batch % dp or (cp > 1 and workload.sequence_length % (2 * cp)):
                continue
            for mb in divisors(batch // dp):
                accumulation = batch // dp // mb
                chunks = [1, *chunk_counts(question.layers, pp, accumulation)]
                for ep, vpp in product(divisors(experts), chunks):
                    if dp * cp % ep == 0:
                        yield tp, pp, vpp, cp, ep, dp, mb, accumulation


def divides_layers(workload: Workload, tp: int) -> bool:
    """Returns whether `tp` ranks can share a layer: its heads and its MLP, and those of experts."""
    groups, moe = workload.key_value_heads, workload.mixture_of_experts
    widths = [workload.ffn] + ([moe.expert_ffn_hidden] if moe and moe.expert_ffn_hidden else [])
    if workload.heads % tp or any(width % tp for width in widths):
        return False
    return groups % tp == 0 or tp % groups == 0


@cache
def _chunks(layers: int, pp: int) -> list[int]:
    """Returns the numbers of chunks above 1 that divide layers, or layers and both ends, evenly over stages."""
    most = layers // pp
    counts = {v for whole in (layers, layers + 2) if whole % pp == 0 for v in divisors(whole // pp)}
    return sorted(v for v in counts if 2 <= v <= most)


def chunk_counts(layers: int, pp: int, accumulation: int) -> list[int]:
    """Returns the numbers of chunks above 1 with which `pp` stages can be interleaved evenly."""
    return [] if pp == 1 or accumulation % pp else _chunks(layers, pp)


@cache
def divisors(number: int) -> list[int]:
    """Returns the divisors of a positive number from the smallest on."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def _modes(question: Question, place: int) -> Iterator[Mode]:
    """Yields the modes of the stack at a place."""
    stack, constraints, can = question.stacks[place], question.constraints, question.capabilities(place)
    recomputes = [RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL]
    if stack.attention.kind == "fused" and stack.recomputation.rest <= 0:
        # Fused attention never keeps its scores, so that repeating attention saves and costs nothing.
        recomputes.remove(RECOMPUTE_SELECTIVE)
    groups = (0.0, 1.0) if can.hybrid else (0.0,)
    shardings = [(float(zero), node) for zero in can.zero for node in (groups if zero else (0.0,))]
    orders = [(0.0, 0.0), *([(1.0, 0.0)] if can.placement else []), *([(0.0, 1.0)] if can.data_last else [])]
    schedules = [0.0]
    if can.pipeline:
        offered = [each for each in question.schedules if can.schedules is None or each in can.schedules]
        schedules += [SCHEDULES[each] for each in offered if each not in MEASURED_SCHEDULES]
    for (zero, node), overlap, sp, recompute, order, schedule in product(
        shardings, (0.0, 1.0), (0.0, 1.0), recomputes, orders, schedules
    ):
        mode = Mode(zero, node, overlap, sp, recompute, *order, schedule)
        if holding(constraints, mode.values, 1)[0]:
            yield mode
