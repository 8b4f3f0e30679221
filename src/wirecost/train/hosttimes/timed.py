"""Builds a variant of the engine, and times how long the host takes to issue its iterations."""

from __future__ import annotations

import copy
import gc
import json
from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from wirecost.spec import Device, Experiment
from wirecost.train.batches import Batches
from wirecost.train.communicator import Communicator
from wirecost.train.engine import Engine, build_engine
from wirecost.train.hosttimes.one_rank import OneRank
from wirecost.train.hosttimes.variants import VARIANTS, Cost, HostRequest, experiment_of, measurable, model_of
from wirecost.train.models import examples_for
from wirecost.train.parallel.pipeline import PipelineExecution
from wirecost.train.recorder import Marks, Sample


class NoMessages:
    """A channel that neither sends nor receives. It has the methods of `Channel` that a first stage calls."""

    def receive(self, *_: object) -> None:
        """Receives nothing. The tensor stays as it is."""

    def finish(self, *_: object) -> None:
        """Waits for nothing."""


class TimedEngine:
    """An engine whose iterations are issued as in training.

    Args:
        experiment: what it trains, as rank 0 of a group that moves nothing.
    """

    def __init__(self, experiment: Experiment, device: torch.device) -> None:
        self.device = device
        self.engine: Engine = build_engine(experiment, device)
        examples = examples_for(experiment.workload)
        limit = min(experiment.workload.text_vocabulary, 1 << 16)
        tokens = np.random.default_rng(0).integers(0, limit, 4 * examples.length, dtype=np.uint16)
        batches = Batches(
            tokens,
            examples,
            global_batch=experiment.global_batch,
            micro_batch=experiment.micro_batch,
            seed=experiment.seed,
        )
        share = batches.share(0, *self.engine.groups.batch_share)
        self.micro_batches = self.engine.on_device(share)

    def issue(self) -> tuple[float, Marks]:
        """Returns the seconds in which the host issues an iteration, and the iteration's marks."""
        engine = self.engine
        start = perf_counter()
        engine.recorder.begin()
        engine.iteration(self.micro_batches)
        marks = engine.recorder.finish()
        return perf_counter() - start, marks

    def calls(self) -> Counter[tuple[str, str]]:
        """Returns how often an iteration calls each operation of each group, as (operation, group)."""
        _, marks = self.issue()
        return Counter((call.op, call.group) for call in self.read(marks).communications)

    def timed(self, iterations: int) -> tuple[list[float], list[bool | None]]:
        """Returns the seconds to issue each of some iterations, and whether the device kept pace with the host.

        As in training, the device still does the iteration before when one is issued, and its marks are read then.
        A call costs the host more than with an idle device. One more iteration precedes them.
        """
        issued = [self.issue()]
        for _ in range(iterations):
            issued.append(self.issue())
            self.read(issued[-2][1])
        self.read(issued[-1][1])
        return [seconds for seconds, _ in issued[1:]], [marks.kept_pace for _, marks in issued[1:]]

    def read(self, marks: Marks) -> Sample:
        """Returns the sample of an iteration, after the device has done it."""
        self.engine.recorder.clock.wait(marks.end)
        return self.engine.recorder.resolve(marks)


def without_transfers(execution: PipelineExecution) -> PipelineExecution:
    """Returns the execution of a first stage that passes no states on and receives no gradients."""
    silent = copy.copy(execution)
    silent.channels = dict.fromkeys(execution.channels, NoMessages())  # type: ignore[arg-type]
    silent._send_state = lambda *_: None  # type: ignore[method-assign]
    return silent


def serve(request: HostRequest, cost: Cost | None, answer: Any, lines: Any) -> None:
    """Builds a variant, answers with what it calls, and then answers each turn with its times."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    variant = VARIANTS[cost]
    cuda = request.device is Device.CUDA
    if cuda and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU here")
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    memory_bytes = None
    if cuda:
        torch.cuda.set_device(device)
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
    torch.set_num_threads(1)
    Communicator.collectives = OneRank(device)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=variant.ranks)  # type: ignore[arg-type]
    workload = measurable(request.workload, memory_bytes)
    timed = TimedEngine(experiment_of(request, variant, model_of(cost, workload)), device)
    engine = timed.engine
    executions = [engine.execution]
    if isinstance(engine.execution, PipelineExecution):
        executions.append(without_transfers(engine.execution))
    for _ in range(max(1, request.warmup)):
        for execution in executions:
            engine.execution = execution
            timed.issue()
    engine.execution = executions[0]
    calls = timed.calls()
    gc.collect()
    gc.freeze()
    ready = {
        "workload": workload.model_dump(mode="json"),
        "device": torch.cuda.get_device_name(device) if cuda else None,
        "calls": [[op, group, number] for (op, group), number in sorted(calls.items())],
    }
    answer(ready)
    for line in lines:
        turns = [_turn(timed, execution, json.loads(line)["iterations"]) for execution in executions]
        turn = {"issue_s": turns[0][0], "kept_pace": turns[0][1]}
        if len(turns) > 1:
            turn |= {"baseline_s": turns[1][0], "baseline_kept_pace": turns[1][1]}
        answer(turn)


def _turn(timed: TimedEngine, execution: Any, iterations: int) -> tuple[list[float], list[bool | None]]:
    timed.engine.execution = execution
    return timed.timed(iterations)
