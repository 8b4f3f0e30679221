"""Processes that make no progress."""

from __future__ import annotations

import pytest

from wirecost.launch.processes import ProcessState
from wirecost.launch.stalls import STALLED_S, ElapsedTime, StallWatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def first_stall(
    states: dict[int, list[ProcessState | None]], *, step_s: float = 1.0, disk_may_be_slow: bool = False
):
    """The first stall that is seen, and after how many looks."""
    clock, look = Clock(), 0
    watch = StallWatch(disk_may_be_slow=disk_may_be_slow, read=lambda pid: states[pid][look], clock=clock)
    for look in range(len(next(iter(states.values())))):
        clock.now_s += step_s
        if stall := watch.look(lambda: states):
            return stall, look
    return None


def states(letter: str, ticks: range | list[int]) -> list[ProcessState | None]:
    return [ProcessState(letter, t) for t in ticks]


def test_a_stopped_process_is_found_after_a_while_and_named() -> None:
    found = first_stall({7: states("S", range(40)), 8: states("T", [5] * 40)})
    assert found is not None
    stall, looks = found
    assert (stall.pid, stall.letter) == (8, "T")
    assert "is stopped" in stall.reason
    assert looks == STALLED_S


@pytest.mark.parametrize(("slow_disk", "seen"), [(False, True), (True, False)])
def test_a_process_that_hangs_in_the_kernel_is_found_unless_its_disk_may_be_slow(
    slow_disk: bool, seen: bool
) -> None:
    found = first_stall({8: states("D", [5] * 40)}, disk_may_be_slow=slow_disk)
    assert (found is not None) is seen
    if found:
        assert "hangs in the kernel" in found[0].reason


@pytest.mark.parametrize("letter", ["R", "S", "t", "Z"])
def test_other_states_are_no_stall(letter: str) -> None:
    assert first_stall({8: states(letter, [5] * 60)}) is None


def test_a_process_that_uses_processor_time_or_goes_on_in_between_makes_progress() -> None:
    assert first_stall({8: states("D", range(60))}) is None
    paused = (states("T", [5] * 10) + states("S", [5])) * 5
    assert first_stall({8: paused}) is None
    assert first_stall({8: [None] * 60}) is None


def test_a_watcher_that_was_stopped_itself_has_seen_nothing() -> None:
    assert first_stall({8: states("T", [5] * 5)}, step_s=1000.0) is None
    clock = Clock()
    elapsed = ElapsedTime(clock)
    clock.now_s = 1.0
    elapsed.step()
    clock.now_s = 86400.0
    elapsed.step()
    assert elapsed.seconds == 3.0
