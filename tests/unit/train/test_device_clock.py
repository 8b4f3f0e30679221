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

    def event(self, device: object, **_: object) -> Any:
        assert device == torch.device("cuda", 0)
        return Event(self)


class Event:
    """Happens when it's recorded, at a millisecond after the one before."""

    asked = 0

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.ms = 0.0

    def record(self) -> None:
        self.cuda.note("mark")
        self.ms = float(len(self.cuda.done))

    def elapsed_time(self, end: Event) -> float:
        Event.asked += 1
        return end.ms - self.ms


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    for name, replacement in {
        "synchronize": lambda: None, "Stream": made.stream, "stream": made.on, "current_device": lambda: 0,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, replacement)
    monkeypatch.setattr(torch, "Event", made.event)
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
    streams = []
    for group, stream in (("data_parallel", "beside-1"), ("pipeline", "beside-2"), ("data_parallel", "beside-1")):
        if value is None:
            clock.after(work(cuda), group, lambda: cuda.note("noted"))
        else:
            future = clock.value_after(work(cuda), group, lambda: cuda.note("noted"), value)
            assert future.value() is value
        assert cuda.done == [("wait", stream), ("noted", stream)]
        assert cuda.current == "compute"
        streams.append(stream)
        cuda.done.clear()
    assert streams == ["beside-1", "beside-2", "beside-1"]


def test_a_mark_that_spans_share_is_read_once(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DeviceClock()
    start, shared, end = (clock.now() for _ in range(3))
    monkeypatch.setattr(Event, "asked", 0)
    times = clock.nanoseconds([start, end, start, shared, shared, end])
    assert [time - times[0] for time in times] == [0, 2_000_000, 0, 1_000_000, 1_000_000, 2_000_000]
    assert Event.asked == 1 + 3
    later = clock.now()
    assert clock.nanoseconds([later])[0] - times[0] == 3_000_000


def test_a_stream_that_is_a_context_is_entered_itself(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(SimpleNamespace):
        def __enter__(self) -> None:
            self.before, cuda.current = cuda.current, "own"

        def __exit__(self, *_: object) -> None:
            cuda.current = self.before

    monkeypatch.setattr(torch.cuda, "Stream", Own)
    clock = DeviceClock()
    cuda.done.clear()
    clock.after(work(cuda), "data_parallel", lambda: cuda.note("noted"))
    assert cuda.done == [("wait", "own"), ("noted", "own")]
    assert cuda.current == "compute"


def test_a_graph_has_its_marks_beside_the_work(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(SimpleNamespace):
        def wait_stream(self, other: Any) -> None:
            cuda.note(f"{self.name} waits for {other.name}")

    def stream() -> Stream:
        cuda.streams += 1
        return Stream(name=f"beside-{cuda.streams}", stream_id=cuda.streams)

    capturing = [False]
    compute = Stream(name="compute", stream_id=0)
    streams = {"compute": compute}

    def created() -> Stream:
        made = stream()
        streams[made.name] = made
        return made

    for name, replacement in {
        "Stream": created,
        "Event": lambda **_: Event(cuda),
        "current_stream": lambda: streams[cuda.current],
        "is_current_stream_capturing": lambda: capturing[0],
    }.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    clock = DeviceClock()
    clock.make_replayable()
    capturing[0] = True
    cuda.done.clear()
    clock.now()
    assert cuda.done == [("beside-1 waits for compute", "compute"), ("mark", "beside-1")]
    clock.after(work(cuda), "data_parallel", lambda: clock.now())
    # The stream of a group's ends has no work that could wait.
    assert cuda.done[2:] == [("wait", "beside-2"), ("mark", "beside-2")]
    cuda.done.clear()
    clock.now()
    assert cuda.done == [("beside-1 waits for compute", "compute"), ("mark", "beside-1")]
    cuda.done.clear()
    clock.join()
    assert cuda.done == [("compute waits for beside-2", "compute"), ("compute waits for beside-1", "compute")]
