"""Iterations as CUDA graphs: the host launches one graph instead of every kernel and collective.

A graph holds an iteration up to the optimizer's step, with its collectives and the events that time them
(`cudaEventRecordExternal` in NVIDIA's CUDA documentation). NCCL 2.9 and later can capture collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wirecost.spec.graphs import may_replay
from wirecost.train.engine import Engine
from wirecost.train.models import Batch
from wirecost.train.recorder import Marks, Sample

EAGER_ITERATIONS = 2
"""Iterations before the capture. They compile, connect ranks and choose algorithms, which can't be captured."""
LAUNCH_BOUND = 0.9
"""Share of an iteration that the host takes to issue it from which on the engine uses graphs."""
NUMBER_OF_GRAPHS = 2
"""One graph's events can be read while the other one runs."""


@dataclass(frozen=True)
class CapturedIteration:
    """A graph with the marks that each of its replays records, and the tensor that then holds the mean loss."""

    graph: torch.cuda.CUDAGraph
    marks: Marks
    loss: torch.Tensor | None


class IterationGraphs:
    """Captures the iterations of an engine, and replays the graphs in turn.

    All iterations have micro-batches of the same shapes. The engine's work is issued on one stream that isn't the
    default stream (`use_side_stream`), because nothing may be captured there.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._captured: list[CapturedIteration] = []
        self._inputs: list[Batch] = []
        self._next = 0

    def __len__(self) -> int:
        """Number of captured graphs: 0 before `capture`."""
        return len(self._captured)

    def capture(self, micro_batches: Sequence[Batch]) -> None:
        """Captures the graphs without training. Every rank calls it between iterations.

        Args:
            micro_batches: an iteration's micro-batches on the device.
        """
        engine, recorder = self.engine, self.engine.recorder
        recorder.clock.make_replayable()
        self._inputs = [{name: tensor.clone() for name, tensor in batch.items()} for batch in micro_batches]
        pool: Any = torch.cuda.graph_pool_handle()
        for _ in range(NUMBER_OF_GRAPHS):
            # Parameters that the last step changed are gathered in the next iteration, thus in the graph. A
            # checkpoint or a validation may have gathered them already.
            engine.strategy.after_step()
            graph = torch.cuda.CUDAGraph()
            capture = torch.cuda.graph(
                graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
            )
            with capture, recorder.capturing() as marks:
                loss = engine.until_step(self._inputs)
                recorder.clock.join()
            self._captured.append(CapturedIteration(graph, marks, loss))
        engine.strategy.after_step()

    def replay(self, micro_batches: Sequence[Batch]) -> torch.Tensor | None:
        """Trains on the micro-batches as `Engine.iteration` does.

        The iteration before the last one must be resolved, because the replay records its marks again.

        Returns:
            The mean loss. The replay after the next one overwrites it.
        """
        captured = self._captured[self._next]
        self._next = (self._next + 1) % len(self._captured)
        for inputs, batch in zip(self._inputs, micro_batches, strict=True):
            for name, tensor in inputs.items():
                tensor.copy_(batch[name])
        captured.graph.replay()
        self.engine.recorder.replayed(captured.marks)
        self.engine.strategy.after_step()
        return captured.loss


def graphs_for(engine: Engine) -> IterationGraphs | None:
    """Returns the graphs that an engine may capture, or None if there are none."""
    return IterationGraphs(engine) if may_replay(engine.groups.experiment) else None


def use_side_stream(device: torch.device) -> None:
    """Makes a new stream the current one of this thread for all further work on a GPU."""
    torch.cuda.set_stream(torch.cuda.Stream(device))


def is_launch_bound(sample: Sample) -> bool:
    """Returns whether the device waited for the host over most of an iteration."""
    issue_ns = sample.host_issue_ns or 0
    return bool(sample.kept_pace) and issue_ns >= LAUNCH_BOUND * (sample.end_ns - sample.start_ns)
