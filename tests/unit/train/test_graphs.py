"""Iterations that are replayed, with graphs of the test's own: a replay trains as the engine does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from support.parity import TOKENS, WORKLOADS, experiment  # noqa: E402
from wirecost.breakdown import Phase  # noqa: E402
from wirecost.spec import Family, Plan  # noqa: E402
from wirecost.train import loop  # noqa: E402
from wirecost.train.clock import HostClock  # noqa: E402
from wirecost.train.engine import Engine  # noqa: E402
from wirecost.train.graphs import EAGER_ITERATIONS, is_launch_bound  # noqa: E402
from wirecost.train.models import Batch  # noqa: E402
from wirecost.train.recorder import Recorder, Sample  # noqa: E402


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore[reportPrivateImportUsage]
    yield
    dist.destroy_process_group()


class ReplayingGraphs:
    """Stands in for graphs: it counts, and a replay runs the engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.captures: list[Sequence[Batch]] = []
        self.replays = 0

    def __len__(self) -> int:
        return 2 * len(self.captures)

    def capture(self, micro_batches: Sequence[Batch]) -> None:
        self.captures.append(micro_batches)

    def replay(self, micro_batches: Sequence[Batch]) -> Any:
        self.replays += 1
        loss = self.engine.until_step(micro_batches)
        self.engine.strategy.after_step()
        self.engine.recorder.current.replayed = True
        return loss


def trained(
    monkeypatch: pytest.MonkeyPatch, *, held_up: bool, **changes: Any
) -> tuple[list[Any], list[ReplayingGraphs]]:
    made: list[ReplayingGraphs] = []

    def graphs_for(engine: Engine) -> ReplayingGraphs:
        made.append(ReplayingGraphs(engine))
        return made[-1]

    monkeypatch.setattr(loop, "graphs_for", graphs_for)
    monkeypatch.setattr(loop, "is_launch_bound", lambda _: held_up)
    one = experiment(Plan(name="plain"), WORKLOADS[Family.GPT], 1, iterations=4, **changes)
    done = [d for d in loop.train(one, TOKENS, torch.device("cpu")) if isinstance(d, loop.TrainedIteration)]
    return done, made


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("warmup", [0, 2, 5])
def test_iterations_before_and_with_the_capture_are_warm_up(monkeypatch: pytest.MonkeyPatch, warmup: int) -> None:
    done, (graphs,) = trained(monkeypatch, held_up=True, warmup=warmup)
    assert [d.sample.replayed for d in done] == [n >= EAGER_ITERATIONS for n in range(len(done))]
    assert sum(not d.warmup for d in done) == 4
    assert sum(d.warmup for d in done) == max(warmup, EAGER_ITERATIONS + 1)
    assert (len(graphs.captures), graphs.replays) == (1, len(done) - EAGER_ITERATIONS)


@pytest.mark.usefixtures("alone")
def test_nothing_is_captured_where_the_host_keeps_up_and_both_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, (graphs,) = trained(monkeypatch, held_up=False, warmup=3)
    assert (graphs.captures, graphs.replays) == ([], 0)
    replayed, _ = trained(monkeypatch, held_up=True, warmup=3)
    assert [d.loss for d in plain] == [d.loss for d in replayed]


def test_replayed_marks_are_those_of_the_graph_after_the_iterations_own() -> None:
    recorder = Recorder(HostClock())
    with recorder.capturing() as captured:
        with recorder.phase(Phase.FORWARD), recorder.phase(Phase.TENSOR_PARALLEL):
            call = recorder.launch("all_reduce", "tensor", (0, 1), 8)
            recorder.ended(call)
        recorder.enter(Phase.BACKWARD)
        recorder.leave(captured.phases[-1])
    recorder.begin()
    with recorder.phase(Phase.DATA):
        pass
    recorder.replayed(captured)
    marks = recorder.finish()
    assert marks.replayed
    assert [(s.phase, s.outer) for s in marks.phases] == [
        (Phase.DATA, None),
        (Phase.FORWARD, None),
        (Phase.TENSOR_PARALLEL, 1),
        (Phase.BACKWARD, None),
    ]
    assert marks.calls == [call]


def test_a_capture_with_a_collective_that_has_not_ended_is_refused() -> None:
    recorder = Recorder(HostClock())
    with pytest.raises(RuntimeError, match="unfinished collectives: all_reduce"), recorder.capturing():
        recorder.launch("all_reduce", "tensor", (0, 1), 8)


@pytest.mark.parametrize(
    ("issue_ns", "kept_pace", "bound"),
    [(95, True, True), (80, True, False), (99, False, False), (None, None, False)],
)
def test_a_device_that_waits_for_its_host_is_launch_bound(
    issue_ns: int | None, kept_pace: bool | None, bound: bool
) -> None:
    sample = Sample(0, 100, {}, None, [], issue_ns, kept_pace)  # type: ignore[arg-type]
    assert is_launch_bound(sample) is bound
