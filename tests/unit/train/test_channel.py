"""What a channel waits for on a GPU, with a stand-in for NCCL's work."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from wirecost.breakdown import Phase  # noqa: E402
from wirecost.train.channel import Channel  # noqa: E402
from wirecost.train.clock import HostClock  # noqa: E402
from wirecost.train.communicator import Communicator  # noqa: E402
from wirecost.train.groups import Group  # noqa: E402
from wirecost.train.recorder import Recorder  # noqa: E402


class Work:
    """NCCL's: its future is complete at once, and only `wait` makes the stream wait for what it does."""

    made: list[Work]

    def __init__(self) -> None:
        self.waited = 0
        self.made.append(self)

    def get_future(self) -> Any:
        future = torch.futures.Future()
        future.set_result(None)
        return future

    def wait(self) -> None:
        self.waited += 1


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    Work.made = []
    for name in ("isend", "irecv", "all_reduce"):
        monkeypatch.setattr(dist, name, lambda *_args, **_options: Work())
    return Work.made


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder(HostClock())
    recorder.begin()
    return recorder


GROUP = Group("pipeline", (0, 1), 0, None)


def test_a_received_tensor_is_used_after_it_has_come(works: list[Work], recorder: Recorder) -> None:
    channel = Channel(GROUP, recorder, torch.device("cuda"))
    channel.receive(torch.zeros(4), 1, Phase.PIPELINE_RECV_FORWARD)
    assert [work.waited for work in works] == [1]
    recorder.finish()


def test_what_is_sent_is_kept_until_it_has_gone(works: list[Work], recorder: Recorder) -> None:
    channel = Channel(GROUP, recorder, torch.device("cuda"))
    for _ in range(3):
        channel.send(torch.zeros(4), 1)
    assert [work.waited for work in works] == [1, 0, 0]  # as many under way as the group has ranks
    channel.finish(Phase.PIPELINE_SEND_FORWARD)
    assert [work.waited for work in works] == [1, 1, 1]
    recorder.finish()


def test_a_collective_is_waited_for_itself(works: list[Work], recorder: Recorder) -> None:
    pending = Communicator(GROUP, recorder).all_reduce(torch.zeros(4), asynchronous=True)
    assert works[0].waited == 0
    pending.wait()
    pending.wait()
    assert works[0].waited == 1
    recorder.finish()


def test_a_collective_that_fails_is_an_error_where_it_is_waited_for(
    works: list[Work], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(_work: Work) -> Any:
        future = torch.futures.Future()
        future.set_exception(RuntimeError("Connection closed by peer"))
        return future

    monkeypatch.setattr(Work, "get_future", failed)
    pending = Communicator(GROUP, recorder).all_reduce(torch.zeros(4), asynchronous=True)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        pending.wait()
    assert len(works) == 1
