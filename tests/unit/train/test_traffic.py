"""Compressed gradients: what is lost, and that nothing is lost for good."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from wirecost.train.clock import HostClock
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Group
from wirecost.train.parallel.buckets import Bucket, into_buckets
from wirecost.train.parallel.chains import Chain
from wirecost.train.parallel.traffic.int8 import BLOCK, decode, encode
from wirecost.train.parallel.traffic.powersgd import PowerSGD, orthonormal
from wirecost.train.recorder import Recorder

ALONE = Communicator(Group("data_parallel", (0,), 0, None), Recorder(HostClock()))


def run(chain: Chain) -> None:
    for pending in chain:
        pending.wait()


def bucket_of(*shapes: tuple[int, ...]) -> Bucket:
    return into_buckets([nn.Parameter(torch.zeros(shape)) for shape in reversed(shapes)], None)[0]


def test_eight_bits_are_off_by_half_a_step_of_their_block_at_most() -> None:
    torch.manual_seed(0)
    values = torch.randn(3, 4 * BLOCK) * torch.logspace(-6, 3, 4).repeat_interleave(BLOCK)
    values[1, :BLOCK] = 0
    message = encode(values)
    assert message.dtype == torch.uint8
    assert message.shape == (3, 4 * (BLOCK + 4))
    steps = values.view(3, 4, BLOCK).abs().amax(2) / 127
    errors = (decode(message) - values).view(3, 4, BLOCK).abs().amax(2)
    assert (errors <= 0.5001 * steps).all()


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_eight_bits_do_not_hide_an_overflow(bad: float) -> None:
    values = torch.ones(1, BLOCK)
    values[0, 3] = bad
    assert not decode(encode(values)).isfinite().all()


def test_columns_become_orthonormal() -> None:
    torch.manual_seed(0)
    q = orthonormal(torch.randn(5, 20, 4))
    torch.testing.assert_close(q.mT @ q, torch.eye(4).expand(5, 4, 4), atol=1e-5, rtol=0)
    dependent = torch.randn(20, 1).expand(20, 2).contiguous()
    assert orthonormal(dependent).isfinite().all()
    assert orthonormal(torch.zeros(20, 2)).isfinite().all()


def test_what_low_rank_misses_is_sent_later() -> None:
    torch.manual_seed(0)
    bucket = bucket_of((30, 40), (7,), (30, 40), (2, 3))
    traffic = PowerSGD(ALONE, 2, [bucket], torch.device("cpu"))
    given = torch.zeros(bucket.size)
    sent = torch.zeros(bucket.size)
    for _ in range(6):
        gradient = torch.randn(bucket.size)
        given += gradient
        run(traffic.all_reduce(gradient, bucket))
        sent += gradient
    torch.testing.assert_close(sent + traffic.states[0].error, given, atol=1e-4, rtol=0)
    missed = [(parameter.numel(), bool(view.any())) for parameter, view in bucket.views(traffic.states[0].error)]
    assert sorted(missed) == [(6, False), (7, False), (1200, True), (1200, True)]  # only these are compressed


def test_a_gradient_of_low_rank_goes_through_whole() -> None:
    torch.manual_seed(0)
    bucket = bucket_of((30, 40))
    gradient = (torch.randn(30, 2) @ torch.randn(2, 40)).flatten()
    sent = gradient.clone()
    run(PowerSGD(ALONE, 2, [bucket], torch.device("cpu")).all_reduce(sent, bucket))
    assert torch.allclose(sent, gradient, atol=1e-4, rtol=1e-4)


def test_an_overflow_leaves_no_trace_in_what_is_carried_over() -> None:
    torch.manual_seed(0)
    bucket = bucket_of((30, 40), (7,))
    traffic = PowerSGD(ALONE, 2, [bucket], torch.device("cpu"))
    run(traffic.all_reduce(torch.randn(bucket.size), bucket))
    before = {name: tensor.clone() for name, tensor in traffic.carried().items()}
    gradient = torch.randn(bucket.size)
    gradient[5] = torch.inf
    run(traffic.all_reduce(gradient, bucket))
    assert not gradient.isfinite().all()
    assert before.keys() == traffic.carried().keys()
    for name, tensor in traffic.carried().items():
        assert tensor.equal(before[name]), name
