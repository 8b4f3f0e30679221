"""The order in which chains of collectives go on, on a CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wirecost.train.clock import HostClock
from wirecost.train.parallel.chains import Chain, HostChains
from wirecost.train.pending import Pending
from wirecost.train.recorder import Recorder


def chain(name: str, rounds: int, log: list[str]) -> Chain:
    for number in range(rounds):
        log.append(f"{name}{number}")
        yield Pending(None, lambda n=number: log.append(f"{name}{n} ended"))
    log.append(f"{name} done")


def test_a_chain_goes_on_when_the_next_one_starts_and_nobody_waits_for_its_last_collective() -> None:
    log: list[str] = []
    chains = HostChains(Recorder(HostClock()), None)
    chains.start(chain("a", 2, log), 2)
    chains.start(chain("b", 2, log), 2)
    assert log == ["a0", "a0 ended", "a1", "b0"]
    chains.start(chain("c", 1, log), 1)
    assert log[4:] == ["b0 ended", "b1", "c0"]
    log.clear()
    chains.finish()
    assert log[-2:] == ["c0 ended", "c done"]
    chains.finish()


def test_chains_of_one_collective_are_not_waited_for() -> None:
    log: list[str] = []
    chains = HostChains(Recorder(HostClock()), None)
    for name in "abc":
        chains.start(chain(name, 1, log), 1)
    assert log == ["a0", "b0", "c0"]
    chains.finish()
    assert log[3:] == ["a0 ended", "a done", "b0 ended", "b done", "c0 ended", "c done"]


def test_where_memory_is_short_chains_end_in_order() -> None:
    log: list[str] = []
    chains = HostChains(Recorder(HostClock()), 3)
    chains.start(chain("a", 1, log), 1)
    chains.start(chain("b", 2, log), 2)
    chains.start(chain("c", 1, log), 1)
    assert log == ["a0", "b0", "a0 ended", "a done", "b0 ended", "b1", "c0"]


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_chains_are_under_way_than_may_be(most: int) -> None:
    log: list[str] = []
    chains = HostChains(Recorder(HostClock()), most)
    for name in "abcd":
        chains.start(chain(name, 1, log), 1)
        begun = sum(entry.endswith("0") for entry in log)
        assert begun - sum("done" in entry for entry in log) <= most
    chains.finish()
    assert sum("done" in entry for entry in log) == 4
