from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wirecost.breakdown import Phase
from wirecost.train.clock import HostClock
from wirecost.train.recorder import Recorder


def test_phases_and_other_sum_to_the_iteration() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.FORWARD):
        sum(range(1000))
    sum(range(1000))
    with recorder.phase(Phase.BACKWARD):
        sum(range(1000))
    with recorder.phase(Phase.FORWARD):
        sum(range(1000))
    sample = recorder.resolve(recorder.finish())
    assert set(sample.phases) == {Phase.FORWARD, Phase.BACKWARD, Phase.OTHER}
    assert sum(sample.phases.values()) == sample.end_ns - sample.start_ns == sample.parts.window_ns
    assert sample.parts.compute_only_ns == sample.phases[Phase.FORWARD] + sample.phases[Phase.BACKWARD]


def test_communication_during_compute_is_overlapped_and_its_tail_exposed() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.BACKWARD):
        call = recorder.launch("all_reduce", "data_parallel", (0, 1), 8)
        sum(range(10_000))
        since = recorder.launch("all_reduce", "data_parallel", (0, 1), 8)
        sum(range(10_000))
    recorder.tail(Phase.BACKWARD, since.start, Phase.GRAD_SYNC)
    call.end = since.end = recorder.current.phases[0].end
    sample = recorder.resolve(recorder.finish())
    parts = sample.parts
    assert sample.phases[Phase.GRAD_SYNC] == call.end - since.start
    assert sample.phases[Phase.BACKWARD] >= since.start - call.start
    assert parts.overlapped_ns == since.start - call.start
    assert parts.exposed_comm_ns == call.end - since.start


def test_waits_between_marks_are_taken_out_of_the_phase_that_is_still_open() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.FORWARD):
        pass
    with recorder.phase(Phase.BACKWARD):
        waits = []
        for _ in range(2):
            since = recorder.clock.now()
            call = recorder.launch("reduce_scatter", "sharding", (0, 1), 8)
            sum(range(10_000))
            recorder.ended(call)
            until = recorder.clock.now()
            sum(range(1000))
            recorder.inside(Phase.BACKWARD, since, until, Phase.GRAD_SYNC)
            waits.append(until - since)
    sample = recorder.resolve(recorder.finish())
    assert sample.phases[Phase.GRAD_SYNC] == sum(waits)
    assert sum(sample.phases.values()) == sample.parts.window_ns
    assert sample.parts.overlapped_ns == 0
    assert 0 < sample.parts.exposed_comm_ns <= sum(waits)


def test_a_phase_inside_another_counts_once() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.FORWARD):
        for _ in range(2):
            with recorder.phase(Phase.TENSOR_PARALLEL):
                call = recorder.launch("all_reduce", "tensor_parallel", (0, 1), 8)
                sum(range(1000))
                recorder.ended(call)
            sum(range(1000))
    sample = recorder.resolve(recorder.finish())
    assert sum(sample.phases.values()) == sample.parts.window_ns
    assert sample.parts.compute_only_ns == sample.phases[Phase.FORWARD]
    assert 0 < sample.parts.exposed_comm_ns <= sample.phases[Phase.TENSOR_PARALLEL]
    assert sample.parts.overlapped_ns == 0


def test_outside_an_iteration_nothing_is_noted() -> None:
    recorder = Recorder(HostClock())
    with recorder.phase(Phase.FORWARD):
        recorder.ended(recorder.launch("all_reduce", "data_parallel", (0, 1), 8))
    recorder.begin()
    assert recorder.finish().calls == []


def test_a_collective_that_never_ended_is_an_error() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    recorder.launch("all_reduce", "data_parallel", (0, 1), 8)
    with pytest.raises(RuntimeError, match="unfinished collectives: all_reduce"):
        recorder.finish()


def test_the_next_iteration_starts_empty() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.FORWARD):
        pass
    recorder.begin()
    assert recorder.resolve(recorder.finish()).phases.keys() == {Phase.OTHER}


class BehindTheHost(HostClock):
    """A device that has come to the first `done` marks only."""

    asynchronous = True

    def __init__(self, done: int) -> None:
        self.done = done
        self.noted = 0

    def now(self) -> int:
        self.noted += 1
        return self.noted

    def has_happened(self, mark: int) -> bool:
        return mark <= self.done


@pytest.mark.parametrize(("done", "kept_pace"), [(3, False), (4, True)])
def test_whether_a_device_kept_pace_with_the_host(done: int, kept_pace: bool) -> None:
    recorder = Recorder(BehindTheHost(done))
    recorder.begin()  # mark 1
    with recorder.phase(Phase.FORWARD):  # 2 and 3
        pass
    with recorder.phase(Phase.OPTIMIZER):  # 4 and 5
        pass
    sample = recorder.resolve(recorder.finish())
    assert sample.kept_pace is kept_pace
    assert sample.host_issue_ns is not None
    assert sample.host_issue_ns > 0


def test_a_cpu_is_not_ahead_of_itself() -> None:
    recorder = Recorder(HostClock())
    recorder.begin()
    with recorder.phase(Phase.OPTIMIZER):
        pass
    sample = recorder.resolve(recorder.finish())
    assert (sample.host_issue_ns, sample.kept_pace) == (None, None)
