"""How parameters are dealt into buckets, and when a bucket leaves."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from wirecost.train.parallel.buckets import Bucket, into_buckets
from wirecost.train.parallel.gradients import GradientsReady


@given(
    sizes=st.lists(st.integers(1, 500), min_size=1, max_size=20),
    bucket_bytes=st.none() | st.integers(1, 2000),
    alignment=st.sampled_from([1, 8, 64]),
    ranks=st.integers(1, 8),
)
def test_every_parameter_lies_in_one_bucket_in_the_order_of_backward(
    sizes: list[int], bucket_bytes: int | None, alignment: int, ranks: int
) -> None:
    parameters = [nn.Parameter(torch.zeros(n)) for n in sizes]
    multiple = alignment * ranks
    buckets = into_buckets(parameters, bucket_bytes, alignment=alignment, multiple_of=multiple)
    assert [id(p) for b in buckets for p in b.parameters] == [id(p) for p in reversed(parameters)]
    for bucket in buckets:
        assert bucket.size % multiple == 0
        flat = torch.ones(bucket.size)
        for _, view in bucket.views(flat):
            assert view.storage_offset() % alignment == 0
            assert view.sum() == view.numel()  # nothing else lies there
            view.zero_()
        for gap in bucket.gaps(flat):
            gap.zero_()
        assert not flat.any()
        *before, _ = [4 * p.numel() for p in bucket.parameters]
        assert bucket_bytes is None or sum(before) < bucket_bytes
    assert bucket_bytes is not None or len(buckets) == 1


def test_a_parameter_that_stages_share_has_a_bucket_of_its_own() -> None:
    parameters = [nn.Parameter(torch.zeros(4)) for _ in range(4)]
    parameters[1].tied_across_stages = True  # type: ignore[attr-defined]
    assert [len(b.parameters) for b in into_buckets(parameters, None)] == [2, 1, 1]


def test_buckets_leave_in_their_order_when_their_last_gradient_is_there() -> None:
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(4)]
    launched: list[int] = []

    def launch(bucket: Bucket) -> None:
        launched.append(bucket.index)

    ready = GradientsReady(into_buckets(parameters, 16), launch)  # two parameters each
    first, second = parameters[:2], parameters[2:]
    sum(p.sum() for p in parameters).backward()  # type: ignore[union-attr]
    assert launched == []  # not armed: not the last micro-batch
    ready.armed = True
    sum(p.sum() for p in first).backward()  # type: ignore[union-attr]
    assert launched == []  # the bucket before it has not left
    second[0].sum().backward()
    assert launched == []
    second[1].sum().backward()
    assert launched == [0, 1]
    ready.reset()
    ready.launch_rest()
    assert launched == [0, 1, 0, 1]
