"""For how long one rank trains, in this process, by a clock of the test's own: nothing ends it but itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from support.parity import TOKENS, WORKLOADS, experiment  # noqa: E402
from wirecost.spec import Family, Plan  # noqa: E402
from wirecost.train import clock, loop  # noqa: E402
from wirecost.units import Seconds  # noqa: E402


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore[reportPrivateImportUsage]
    yield
    dist.destroy_process_group()


def trained(**changes: Any) -> tuple[int, float]:
    """(iterations, seconds of those measured)"""
    one = experiment(Plan(name="plain"), WORKLOADS[Family.GPT], 1, iterations=3, warmup=1, **changes)
    done = [d for d in loop.train(one, TOKENS, torch.device("cpu")) if isinstance(d, loop.TrainedIteration)]
    assert [d.index for d in done] == list(range(len(done)))
    measured = [d.sample for d in done if not d.warmup]
    return len(done), sum(s.end_ns - s.start_ns for s in measured) * 1e-9


@pytest.fixture(autouse=True)
def a_millisecond_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine takes."""
    looks = itertools.count()
    monkeypatch.setattr(clock, "perf_counter_ns", lambda: next(looks) * 1_000_000)
    monkeypatch.setattr(loop, "monotonic", lambda: next(looks) * 1e-3)


@pytest.mark.usefixtures("alone")
def test_as_many_as_asked_for_or_for_as_long() -> None:
    assert trained()[0] == 4
    assert trained(min_time=Seconds(1e-9))[0] == 4
    iterations, spent_s = trained(min_time=Seconds(1))
    assert iterations > 4
    # No more than it takes: what is asked of each further round is what the last ones took.
    assert 1 <= spent_s < 1.2


@pytest.mark.usefixtures("alone")
def test_it_ends_before_the_timeout_and_with_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    _, spent_s = trained(min_time=Seconds(1.9), timeout=Seconds(2))
    assert 1 < spent_s < 1.9
    monkeypatch.setattr(loop, "MAX_EXTRA_ITERATIONS", 2)
    assert trained(min_time=Seconds(100))[0] == 4 + 2
