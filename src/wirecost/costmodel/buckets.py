"""Buckets of gradients as the engine fills them: of whole parameters, in the order of backward.

A bucket is full when it holds at least `bucket_bytes`. A parameter is never cut, so that most buckets are larger,
and one with an embedding may be several times as large. `tests/unit/costmodel/test_buckets.py` checks that the
sizes are those of `wirecost.train.parallel.buckets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from wirecost.costmodel.numbers import Number
from wirecost.spec import Family, Workload
from wirecost.spec.parameters import T5_BUCKETS


@dataclass(frozen=True)
class Buckets:
    """The buckets of the fullest rank.

    Attributes:
        mean_bytes: the mean size of a bucket in bytes.
        last_bytes: the size in bytes of the bucket that leaves last.
    """

    mean_bytes: float
    last_bytes: float


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model.

    Attributes:
        elements: number of its elements.
        split: whether tensor-parallel ranks each have a part of it.
        shared: whether the first and the last unit of the model use it.
    """

    elements: int
    split: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Unit:
    """A part of the model that lies on one pipeline stage."""

    parameters: list[Parameter] = field(default_factory=list)
    layers: int = 0


def sizes_of(parameters: Sequence[tuple[float, bool]], limit: float) -> list[float]:
    """Returns the sizes of the buckets in which parameters leave.

    Args:
        parameters: the size of each parameter, and whether it has a bucket of its own, in the order of the model.
        limit: a bucket is full when it has at least this size.
    """
    sizes: list[float] = []
    room = False
    for size, alone in reversed(parameters):
        if alone or not room:
            sizes.append(0)
        sizes[-1] += size
        room = not alone and sizes[-1] < limit
    return sizes


def is_described(workload: Workload) -> bool:
    """Returns whether the order of a workload's parameters is known here: that of models without experts, latent
    attention and further parameters."""
    return (
        workload.mixture_of_experts is None
        and workload.latent_attention is None
        and not workload.multi_token_prediction
        and not workload.extra_layer_parameters
        and not workload.extra_parameters
    )


def units_of(workload: Workload) -> list[Unit]:
    """Returns the units of a model in the order of forward, each with its parameters in the engine's order."""
    h, family = workload.hidden, workload.family
    first = [Parameter(workload.vocab_size * h, split=True, shared=workload.tied_embeddings)]
    if workload.positions == "learned":
        first.append(Parameter(max(workload.sequence_length, workload.decoder_sequence_length or 0) * h))
    if family is Family.BERT:
        first += [Parameter(2 * h), *_norm(workload)]
    units = [Unit(first), *_layers(workload, workload.layers, cross=False)]
    if family is Family.T5:
        units += [Unit(_norm(workload)), *_layers(workload, workload.decoder_layers or 0, cross=True)]
    last = _norm(workload)
    if family is Family.BERT:
        last = [*_linear(workload, h, h), *last, Parameter(workload.vocab_size, split=True)]
        last += [*_linear(workload, h, h), *_linear(workload, 2, h)]
    elif not workload.tied_embeddings:
        last.append(Parameter(workload.vocab_size * h, split=True))
    return [*units, Unit(last)]


def _layers(workload: Workload, count: int, *, cross: bool) -> Iterator[Unit]:
    h, queries = workload.hidden, workload.heads * workload.head_size
    keys = workload.key_value_heads * workload.head_size
    attention = [*_linear(workload, queries + 2 * keys, h, "columns"), *_linear(workload, h, queries, "rows")]
    wide = [*_linear(workload, workload.ffn, h, "columns")] * (2 if workload.gated else 1)
    mlp = [*wide, *_linear(workload, h, workload.ffn, "rows")]
    norm = _norm(workload)
    for index in range(count):
        relative = []
        if workload.positions == "relative" and index == 0:
            relative = [Parameter(T5_BUCKETS * workload.heads, split=True)]
        if workload.family is Family.BERT:
            layer = [*attention, *norm, *mlp, *norm]
        else:
            layer = [*norm, *relative, *attention, *norm, *mlp]
        if cross:
            layer += [*norm, *_linear(workload, queries, h, "columns")]
            layer += [*_linear(workload, 2 * keys, h, "columns"), *_linear(workload, h, queries, "rows")]
        yield Unit(layer, layers=1)


def _linear(workload: Workload, rows: int, columns: int, split: str = "") -> list[Parameter]:
    """Returns the weight and the bias of a linear that tensor parallelism splits by columns, by rows or not."""
    weight = Parameter(rows * columns, split=bool(split))
    return [weight, Parameter(rows, split=split == "columns")] if workload.biases else [weight]


def _norm(workload: Workload) -> list[Parameter]:
    return [Parameter(workload.hidden)] * (2 if workload.norm == "layernorm" else 1)


def _held(units: Sequence[Unit], pipeline: int, virtual: int, rank: int) -> list[Parameter]:
    """Returns the parameters of a pipeline's rank. Units before a layer are on its stage, and units after the last
    layer on the last stage."""
    stages = pipeline * virtual
    share = max(sum(unit.layers for unit in units) // stages, 1)
    held: list[Parameter] = []
    before = 0
    for unit in units:
        stage = min(before // share, stages - 1)
        before += unit.layers
        if stage % pipeline == rank:
            held += unit.parameters
            if unit is units[-1] and rank > 0:
                held += [p for p in units[0].parameters if p.shared]
    return held


def buckets_of(
    workload: Workload, tensor: int, pipeline: int, virtual: int, element_bytes: int, bucket_bytes: float
) -> Buckets | None:
    """Returns the buckets of the fullest rank. None for a workload whose parameters' order is not known here.

    Args:
        tensor, pipeline, virtual: numbers of tensor-parallel ranks, of pipeline ranks, and of stages of each.
        element_bytes: size in bytes of an element of the parameters.
    """
    key: Any = workload  # frozen, and so hashable, which its type doesn't say
    return _buckets(key, tensor, pipeline, virtual, element_bytes, bucket_bytes)


@lru_cache(maxsize=4096)
def _buckets(
    workload: Any, tensor: int, pipeline: int, virtual: int, element_bytes: int, bucket_bytes: float
) -> Buckets | None:
    if not is_described(workload):
        return None
    units = units_of(workload)
    ranks = []
    for rank in {0, pipeline // 2, pipeline - 1}:
        held = _held(units, pipeline, virtual, rank)
        sizes = [
            (p.elements / (tensor if p.split else 1) * element_bytes, p.shared and pipeline > 1) for p in held
        ]
        ranks.append(sizes_of(sizes, bucket_bytes))
    fullest = max(ranks, key=sum)
    if not fullest:
        return None
    return Buckets(sum(fullest) / len(fullest), fullest[-1])


def bucket_arrays(
    workload: Workload,
    degrees: tuple[Number, Number, Number],
    element_bytes: int,
    bucket_bytes: Number,
) -> tuple[Number, Number]:
    """Returns the mean and the last size in bytes of the buckets of many configurations; 0 where they are not
    known.

    Args:
        degrees: numbers of tensor-parallel ranks, of pipeline ranks, and of stages of each.
    """
    columns = np.broadcast_arrays(*degrees, bucket_bytes)
    rows = np.stack([np.ravel(column) for column in columns], axis=1)
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    found = [
        buckets_of(workload, int(t), int(p), int(v), element_bytes, float(size)) for t, p, v, size in distinct
    ]
    values = np.array([(b.mean_bytes, b.last_bytes) if b else (0.0, 0.0) for b in found])[places.reshape(-1)]
    mean, last = (values[:, index].reshape(columns[0].shape) for index in (0, 1))
    return mean, last
