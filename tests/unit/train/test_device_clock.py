"""How the end of a collective is marked on a GPU, with a stand-in for CUDA."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from wirecost.train.clock import DeviceClock  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cuda:
    """What is done, and on which stream."""

    def __init__(self) -> None:
        self.current = "compute"
        self.done: list[tuple[str, str]] = []
        self.streams = 0

    def note(self, what: str) -> None:
        self.done.append((what, self.current))

    def stream(self) -> Any:
        self.streams += 1
        return SimpleNamespace(name=f"beside-{self.streams}", device=torch.device("cpu"))

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def event(self, **_: object) -> Any:
        return SimpleNamespace(record=lambda: self.note("mark"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    for name, replacement in {
        "synchronize": lambda: None, "Event": made.event, "Stream": made.stream, "stream": made.on,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, replacement)
    future = torch.futures.Future
    monkeypatch.setattr(torch.futures, "Future", lambda devices: future())
    return made


def work(cuda: Cuda) -> Any:
    """NCCL's, which may not be waited for itself: it would give up its memory."""
    return SimpleNamespace(get_future=lambda: SimpleNamespace(wait=lambda: cuda.note("wait")))


@pytest.mark.parametrize("value", [None, torch.ones(2)])
def test_ends_are_marked_after_a_wait_on_one_stream_for_each_group(cuda: Cuda, value: object) -> None:
    clock = DeviceClock()
    cuda.done.clear()
    for group, stream in (("data_parallel", "beside-1"), ("pipeline", "beside-2"), ("data_parallel", "beside-1")):
        if value is None:
            clock.after(work(cuda), group, lambda: cuda.note("noted"))
        else:
            future = clock.value_after(work(cuda), group, lambda: cuda.note("noted"), value)
            assert future.value() is value
        assert cuda.done == [("wait", stream), ("noted", stream)]
        assert cuda.current == "compute"
        cuda.done.clear()
