"""Where a collective's marks are put: marks take the host's time."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from wirecost.breakdown import Phase
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Group
from wirecost.train.recorder import Recorder


class Counted:
    """A clock whose marks are numbers in their order."""

    asynchronous = False

    def __init__(self) -> None:
        self.marks = 0

    def now(self) -> int:
        self.marks += 1
        return self.marks

    def nanoseconds(self, marks: list[int]) -> list[int]:
        return list(marks)


@pytest.fixture
def communicator(monkeypatch: pytest.MonkeyPatch) -> Communicator:
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: None)
    return Communicator(Group("tensor_parallel", (0, 1), 0, None), Recorder(Counted()))  # type: ignore[arg-type]


def test_a_collective_has_the_marks_of_its_phase(communicator: Communicator) -> None:
    recorder: Any = communicator.recorder
    recorder.begin()
    communicator.all_reduce(torch.ones(4), phase=Phase.TENSOR_PARALLEL)
    assert recorder.clock.marks == 3  # the iteration's start as well
    marks = recorder.finish()
    assert (marks.calls[0].start, marks.calls[0].end) == (marks.phases[0].start, marks.phases[0].end) == (2, 3)
    sample = recorder.resolve(marks)
    assert sample.phases[Phase.TENSOR_PARALLEL] == sample.parts.comm_ns == 1


def test_without_a_phase_it_has_its_own(communicator: Communicator) -> None:
    recorder: Any = communicator.recorder
    recorder.begin()
    communicator.all_reduce(torch.ones(4))
    marks = recorder.finish()
    assert (marks.calls[0].start, marks.calls[0].end) == (2, 3)
    assert not marks.phases


def test_outside_an_iteration_it_leaves_nothing(communicator: Communicator) -> None:
    communicator.all_reduce(torch.ones(4), phase=Phase.TENSOR_PARALLEL)
    recorder: Any = communicator.recorder
    recorder.begin()
    assert recorder.finish().calls == []


def test_an_uneven_all_to_all_has_the_size_of_an_even_one_that_sends_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "all_to_all_single", lambda *_, **__: None)
    over = Communicator(Group("expert_parallel", (0, 1, 2), 1, None), Recorder(Counted()))  # type: ignore[arg-type]
    over.recorder.begin()
    for sent in ([4, 4, 4], [5, 7, 0], [0, 12, 0]):
        over.all_to_all(torch.ones(12, 8), torch.ones(12, 8), sent=sent, received=[4, 4, 4])
    sizes = [call.size_bytes for call in over.recorder.finish().calls]
    assert sizes == [12 * 8 * 4, 5 * 8 * 4 * 3 / 2, 0]
