from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from wirecost.spec import LossScaling, Precision
from wirecost.spec.experiment import Optimizer
from wirecost.train.clock import HostClock
from wirecost.train.groups import Group
from wirecost.train.recorder import Recorder
from wirecost.train.step import Stepper

ALONE = Group("alone", (0,), 0, None)


class Alone:
    """A strategy and the groups of a single rank."""

    pieces_over = None
    tensor = pipeline = ALONE

    def __init__(self, *parameters: nn.Parameter) -> None:
        self.parameters = parameters

    def optimizer_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters)

    def gradient_pieces(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for parameter in self.parameters:
            assert parameter.grad is not None
            yield parameter, parameter.grad


def stepper(alone: Alone, precision: Precision, **settings: object) -> Stepper:
    recorder = Recorder(HostClock())
    made = Stepper(alone, Optimizer(weight_decay=0, **settings), precision, alone, recorder)  # type: ignore[arg-type]
    recorder.begin()
    return made


def test_clipping_is_pytorchs() -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(n)) for n in (3, 5)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    adam = torch.optim.AdamW(theirs, lr=1e-3, betas=(0.9, 0.95), weight_decay=0)
    made = stepper(Alone(*ours), Precision.FP32, gradient_clipping=0.5)
    steps = 0
    for scale in (1.0, 0.01, 3.0):
        for p, q in zip(ours, theirs, strict=True):
            gradient = scale * torch.randn(p.shape)
            p.grad, q.grad = gradient, gradient.clone()
        norm = nn.utils.clip_grad_norm_(theirs, 0.5)
        made.step()
        adam.step()
        assert made.gradient_norm is not None
        torch.testing.assert_close(made.gradient_norm, norm)
        steps += 1
    torch.testing.assert_close(ours, theirs)
    assert steps == 3


def test_an_overflow_skips_the_step_and_halves_the_scale_and_good_steps_double_it() -> None:
    parameter = nn.Parameter(torch.ones(4, dtype=torch.float16))
    made = stepper(
        Alone(parameter), Precision.FP16, learning_rate=0.1, loss_scaling=LossScaling(initial=8.0, window=2)
    )
    assert made.scale is not None
    scales, values = [], []
    for gradient in (float("inf"), 8.0, 8.0, 16.0, float("nan")):
        parameter.grad = torch.full_like(parameter, gradient)
        made.step()
        scales.append(made.scale.value.item())
        values.append(parameter[0].item())
    assert scales == [4.0, 4.0, 8.0, 8.0, 4.0]
    # Each step that counted moves by the learning rate, whatever the scale: Adam's first step among them.
    assert values == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.7], abs=2e-3)
    assert float(made.loss_factor(0.5)) == 2.0


def test_clipping_of_scaled_gradients_clips_what_they_stand_for() -> None:
    plain, scaled = (nn.Parameter(torch.ones(4)) for _ in range(2))
    made = [
        stepper(Alone(plain), Precision.FP32, gradient_clipping=0.1, epsilon=0.1),
        stepper(Alone(scaled), Precision.FP16, gradient_clipping=0.1, epsilon=0.1),
    ]
    plain.grad, scaled.grad = torch.arange(4.0), torch.arange(4.0) * 2**16
    for one in made:
        one.step()
    torch.testing.assert_close(plain, scaled)
    assert made[1].gradient_norm is not None
    torch.testing.assert_close(made[1].gradient_norm, torch.arange(4.0).norm())


def test_a_parameter_outside_the_loss_is_an_error() -> None:
    made = stepper(Alone(nn.Parameter(torch.ones(2))), Precision.FP32)
    with pytest.raises(RuntimeError, match="no gradient"):
        made.step()
