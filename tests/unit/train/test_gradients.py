"""Gradients on their way into flat buffers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import wirecost.train.parallel.gradients as gradients
from wirecost.train.parallel.buckets import Bucket, into_buckets
from wirecost.train.parallel.gradients import GradientsReady, Places

SIZES = (3, 4, 5)


def _parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(size)) for size in SIZES]


def _ready(
    parameters: list[nn.Parameter], *, bucket_bytes: int | None = None
) -> tuple[GradientsReady, torch.Tensor]:
    """With the buffer that gradients come into; it isn't cleared, and nothing may be left of what is in it."""
    buckets = into_buckets(parameters, bucket_bytes)
    buffer = torch.full((sum(SIZES),), torch.nan)
    flat = buffer.split([b.size for b in buckets])
    places = Places(dict(pair for b in buckets for pair in b.views(flat[b.index])))
    return GradientsReady(buckets, lambda _: None, places), buffer


def _loss(parameters: list[nn.Parameter], factor: float) -> torch.Tensor:
    return torch.stack([(p * factor * number).sum() for number, p in enumerate(parameters, 1)]).sum()


@pytest.mark.parametrize("together", [1, 20, 1 << 20])
def test_micro_batches_add_up(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "TOGETHER_BYTES", together)
    parameters = _parameters()
    ready, buffer = _ready(parameters)
    assert buffer.numel() == sum(SIZES)
    for _ in range(2):  # iterations
        ready.reset()
        for factor in (1.0, 10.0, 100.0):
            with ready.launching(False):
                _loss(parameters, factor).backward()
            assert all(p.grad is None for p in parameters)
        ready.launch_rest()
        expected = [111.0 * number for number, size in enumerate(SIZES, 1) for _ in range(size)]
        assert sorted(buffer.tolist()) == sorted(expected)


def test_what_backward_did_not_come_to_is_zero() -> None:
    parameters = _parameters()
    ready, buffer = _ready(parameters)
    ready.reset()
    _loss(parameters, 1.0).backward()
    ready.launch_rest()
    ready.reset()
    parameters[1].sum().backward()
    ready.launch_rest()
    assert sorted(buffer.tolist()) == [0.0] * 8 + [1.0] * 4


def test_a_parameter_used_twice_counts_twice() -> None:
    parameters = _parameters()
    ready, buffer = _ready(parameters)
    ready.reset()
    (parameters[0].sum() + (parameters[0] * 2).sum()).backward()
    ready.launch_rest()
    assert sorted(buffer.tolist())[-3:] == [3.0] * 3


def test_a_bucket_leaves_with_all_of_its_gradients() -> None:
    parameters = _parameters()
    ready, buffer = _ready(parameters, bucket_bytes=4 * SIZES[-1])
    left: list[list[float]] = []

    def launch(bucket: Bucket) -> None:
        end = sum(b.size for b in ready.buckets[: bucket.index + 1])
        left.append(buffer[end - bucket.size : end].tolist())

    ready.launch = launch
    ready.reset()
    with ready.launching(False):
        _loss(parameters, 1.0).backward()
    assert left == []
    with ready.launching(True):
        _loss(parameters, 1.0).backward()
    assert left == [[6.0] * 5, [4.0] * 4 + [2.0] * 3]


def test_a_failed_backward_leaves_nothing_for_the_next_iteration() -> None:
    parameters = _parameters()
    ready, buffer = _ready(parameters)
    ready.reset()

    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("out of memory")

    broken = parameters[0] * 1.0
    broken.register_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        (parameters[2].sum() + broken.sum()).backward()
    ready.reset()
    _loss(parameters, 1.0).backward()
    ready.launch_rest()
    assert sorted(buffer.tolist()) == [1.0] * 3 + [2.0] * 4 + [3.0] * 5
