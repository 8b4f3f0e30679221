"""What a watched job's times say."""

import pytest

import wirecost
from wirecost.errors import WirecostError
from wirecost.live.marks import IterationTimes
from wirecost.live.sinks import to_prometheus, to_tensorboard
from wirecost.live.summary import RankTimes, Window, summarise


def iterations(*tails_s: float | None, times: int = 20, iteration_s: float = 0.1) -> list[list[IterationTimes]]:
    """Returns equal iterations of ranks with these tails."""
    return [[IterationTimes(iteration_s, tail) for tail in tails_s]] * times


def window_of(ranks: list[list[IterationTimes]]) -> Window:
    window = summarise(ranks)
    assert window is not None
    return window


def test_the_rank_that_waits_least_is_late() -> None:
    window = window_of(iterations(0.05, 0.01, 0.05))
    assert window.late_rank == 1
    assert window.exposed == pytest.approx(0.11 / 3 / 0.1)
    assert window.wait == pytest.approx(0.08 / 3 / 0.1)
    assert window.line == "100 ms, 37% exposed communication, 73% of it waiting for rank 1"


def test_small_differences_name_nobody_and_unknown_stays_unknown() -> None:
    assert window_of(iterations(0.02, 0.021)).late_rank is None
    unknown = window_of(iterations(None, 0.01))
    assert (unknown.exposed, unknown.wait, unknown.late_rank) == (None, None, None)
    assert "unknown" in unknown.line
    assert set(unknown.scalars()) == {"wirecost/iteration_ms"}
    assert summarise([]) is None
    assert window_of(iterations(0.05)).wait == 0.0
    assert RankTimes.of([]) is None
    known, unknown_tail = IterationTimes(1.0, 0.1), IterationTimes(1.0, None)
    assert RankTimes.of([unknown_tail, known]) == RankTimes(1.0, None)
    assert RankTimes.of([unknown_tail, known, known]) == RankTimes(1.0, 0.1)


def test_scalars_reach_their_sinks() -> None:
    class Writer:
        def __init__(self) -> None:
            self.scalars: list[tuple[str, float, int]] = []

        def add_scalar(self, *values: object) -> None:
            self.scalars.append(values)  # type: ignore[arg-type]

    writer = Writer()
    window = Window(0.1, 0.2, 0.1, 3, "eth0", 18e9)
    to_tensorboard(writer)(window.scalars(), 7)
    assert ("wirecost/network_Gbps", 18.0, 7) in writer.scalars and len(writer.scalars) == 5
    assert window.line.endswith("eth0 18 Gb/s")


def test_prometheus_serves_the_latest_scalars() -> None:
    pytest.importorskip("prometheus_client")
    import urllib.request

    from wirecost.launch.ports import free_port

    port = free_port()
    sink = to_prometheus(port)
    sink({"wirecost/iteration_ms": 5.0}, 20)
    sink({"wirecost/iteration_ms": 6.0}, 40)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert "wirecost_iteration_ms 6.0" in text and "wirecost_iteration 40.0" in text
    with pytest.raises(WirecostError, match="choose another one"):
        to_prometheus(port)


def test_watch_refuses_what_makes_no_sense() -> None:
    with pytest.raises(WirecostError, match="every=0"):
        wirecost.watch(every=0)
