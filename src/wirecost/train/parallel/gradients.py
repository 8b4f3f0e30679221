"""Moves gradients from backward to buckets, and launches the buckets when they are full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from wirecost.train.parallel.buckets import Bucket

TOGETHER_BYTES = 64 << 20
"""Size of the gradients that are moved to their places together. Until then they use additional memory."""


class Places:
    """Moves gradients to their places in flat buffers, many of them in one kernel.

    The first gradient of an iteration is copied, and later ones are added. Autograd's own accumulation launches
    a kernel for every parameter, and needs a cleared buffer. For GPT-2-Medium on a GPU, that is a quarter of
    the host's work in backward.

    Args:
        views: the place of each parameter's gradient, for all parameters that may get one.
    """

    def __init__(self, views: dict[nn.Parameter, torch.Tensor]) -> None:
        self.views = views
        self._waiting: dict[nn.Parameter, None] = {}  # an ordered set
        self._waiting_bytes = 0
        self._filled: set[nn.Parameter] = set()

    def clear(self) -> None:
        """Drops all gradients."""
        for parameter in self.views:
            parameter.grad = None
        self._filled.clear()
        self._waiting.clear()
        self._waiting_bytes = 0

    def take(self, parameter: nn.Parameter) -> None:
        """Registers the new gradient of a parameter. It is moved before the end of the current backward."""
        if not self._waiting:
            torch.autograd.Variable._execution_engine.queue_callback(self.flush)
        self._waiting[parameter] = None
        self._waiting_bytes += self.views[parameter].nbytes
        if self._waiting_bytes >= TOGETHER_BYTES:
            self.flush()

    @torch.no_grad()
    def flush(self) -> None:
        """Moves the registered gradients to their places."""
        first = [p for p in self._waiting if p not in self._filled]
        again = [p for p in self._waiting if p in self._filled]
        copy_together([self.views[p] for p in first], [take_gradient(p) for p in first])
        if again:
            torch._foreach_add_([self.views[p] for p in again], [take_gradient(p) for p in again])  # pyright: ignore[reportPrivateImportUsage]
        self._filled.update(first)
        self._waiting.clear()
        self._waiting_bytes = 0

    @torch.no_grad()
    def complete(self) -> None:
        """Moves the registered gradients, and sets those that backward didn't compute to zero."""
        self.flush()
        for parameter, view in self.views.items():
            if parameter not in self._filled:
                view.zero_()


class GradientsReady:
    """Launches each bucket from a hook when backward has accumulated the last of its gradients.

    Buckets are launched in their order. It is the same on every rank and doesn't depend on the order of the
    gradients.

    Args:
        launch: starts the communication of a bucket.
        places: the places of the gradients in flat buffers, or None if gradients stay where autograd creates them.
    """

    def __init__(
        self, buckets: Sequence[Bucket], launch: Callable[[Bucket], None], places: Places | None = None
    ) -> None:
        self.buckets = buckets
        self.launch = launch
        self.places = places
        self.armed = False
        self._bucket_of = {p: bucket.index for bucket in buckets for p in bucket.parameters}
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._accumulated)
        self.reset()

    def reset(self) -> None:
        """Prepares for a new backward, in which all gradients are missing."""
        self._missing = [set(bucket.parameters) for bucket in self.buckets]
        self._next = 0
        if self.places is not None:
            self.places.clear()

    @contextmanager
    def launching(self, armed: bool) -> Iterator[None]:
        """Launches buckets within the context if `armed` is set. Otherwise gradients only accumulate."""
        self.armed = armed
        yield
        self.armed = False

    def launch_rest(self) -> None:
        """Launches the buckets in which a gradient is missing."""
        if self.places is not None:
            self.places.complete()
        for bucket in self.buckets[self._next :]:
            self.launch(bucket)
        self._next = len(self.buckets)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        if self.places is not None:
            self.places.take(parameter)
        if not self.armed:
            return
        self._missing[self._bucket_of[parameter]].discard(parameter)
        while self._next < len(self.buckets) and not self._missing[self._next]:
            self._next += 1
            if self.places is not None:
                self.places.flush()
            self.launch(self.buckets[self._next - 1])


def take_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """Removes a parameter's gradient and returns it."""
    gradient, parameter.grad = parameter.grad, None
    assert gradient is not None
    return gradient


@torch.no_grad()
def copy_together(places: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """Copies many tensors in few kernels."""
    if places:
        torch._foreach_copy_(places, values)  # pyright: ignore[reportPrivateImportUsage]
