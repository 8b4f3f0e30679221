"""The length of an iteration and its breakdown, from a replay in which the recorded steps repeat until they
settle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.breakdown import Parts, split_window
from wirecost.breakdown.intervals import merge
from wirecost.trace.categories import KERNEL
from wirecost.whatif.contention import beside
from wirecost.whatif.nodes import HOST, JOIN, SYNC
from wirecost.whatif.scenario import Scenario
from wirecost.whatif.simulate import RankTimes, Speeds

_WARM_CYCLES = 2  # repetitions after which a pipeline of host, device and network is steady
_ELASTIC = 0.05  # by how much each part is sped up to see what bounds the iteration
_SETTLING = 2  # replays after which the kernels beside collectives no longer change
_LARGE_NODES = 40_000  # from so many nodes of a step, over all ranks, fewer repetitions are replayed
_MOST_STEPS, _MOST_STEPS_LARGE = 6, 2

HOST_BOUND, DEVICE_BOUND, NETWORK_BOUND = "host", "device", "network"


@dataclass(frozen=True)
class Measured:
    """One replayed iteration: its length in ns, and the parts of each rank's mean iteration."""

    iteration_ns: float
    parts: list[Parts]

    @property
    def comm_fraction(self) -> float | None:
        """Exposed communication as a share of the iteration, the mean over ranks."""
        shares = [p.exposed_comm_ns / p.window_ns for p in self.parts if p.window_ns]
        return float(np.mean(shares)) if shares else None


def order_of(scenario: Scenario) -> tuple[list[int], int]:
    """Returns the numbers of the steps to replay, and how many of them at the end are measured.

    The first recorded step follows a synchronisation by the profiler and is left out where there are others. Of
    many steps those neighbours repeat whose mean is nearest to the mean of all.
    """
    count = scenario.graph.step_count
    steady = list(range(1, count)) or [0]
    large = _is_large(scenario)
    most = _MOST_STEPS_LARGE if large else _MOST_STEPS
    if len(steady) > most:
        lengths = np.array(scenario.graph.recorded_ns[: len(steady)])
        means = np.convolve(lengths, np.ones(most) / most, mode="valid")
        first = int(np.abs(means - lengths.mean()).argmin())
        steady = steady[first : first + most]
    warm = (1 if large else _WARM_CYCLES) * len(steady)
    return [steady[i % len(steady)] for i in range(warm + len(steady) + 1)], len(steady)


def _is_large(scenario: Scenario) -> bool:
    return sum(len(step.kind) for steps in scenario.ranks for step in steps[-1:]) > _LARGE_NODES


def iteration_ns(scenario: Scenario, speeds: Speeds, transfers: Sequence[float] | None = None) -> float:
    """Returns the steady length of an iteration in ns."""
    order, measured = order_of(scenario)
    scenario = settled(scenario, speeds, transfers)
    return _length(scenario.run(speeds, order, transfers=transfers), measured)


def settled(scenario: Scenario, speeds: Speeds, transfers: Sequence[float] | None = None) -> Scenario:
    """Returns the job with kernels as long as they are beside the collectives that then run at the same time."""
    if all(ratio == 1.0 for ratio in scenario.ratios):
        return scenario
    order, measured = order_of(scenario)
    cycles = list(range(len(order) - 1 - measured, len(order) - 1))
    steps = scenario.ranks
    for _ in range(1 if _is_large(scenario) else _SETTLING):
        results = replace(scenario, ranks=steps).run(speeds, order, keep=cycles, transfers=transfers)
        steps = []
        for number, rank in enumerate(scenario.graph.ranks):
            ratio = scenario.ratios[number]
            device = rank.record.recorded.device
            kernels = ~device.comm & (device.kind == KERNEL)
            steps.append(
                scenario.ranks[number] if ratio == 1.0 else
                beside(scenario.ranks[number], results[number], order, ratio, kernels)
            )  # fmt: skip
    return replace(scenario, ranks=steps)


def _length(results: list[RankTimes], measured: int) -> float:
    lengths = [(r.begins[-1] - r.begins[-1 - measured]) / measured for r in results if len(r.begins) > measured]
    return float(np.mean(lengths)) if lengths else float(np.mean([r.end for r in results]))


def measure(scenario: Scenario, speeds: Speeds) -> Measured:
    """Returns the length of an iteration and its breakdown."""
    order, measured = order_of(scenario)
    scenario = settled(scenario, speeds)
    cycles = list(range(len(order) - 1 - measured, len(order)))
    results = scenario.run(speeds, order, keep=cycles)
    parts = []
    for number, result in enumerate(results):
        if len(result.begins) <= measured:
            continue
        parts.append(
            _parts(scenario, number, result, order, (cycles, result.begins[-1 - measured], result.begins[-1]))
        )
    return Measured(_length(results, measured), [_divided(p, measured) for p in parts])


def device_spans(scenario: Scenario, number: int, result: RankTimes, order: Sequence[int], cycles: Sequence[int]):
    """Returns (start, end, kind) of a rank's device work in the kept cycles; kind 0 computes, 1 communicates, 2
    copies or fills."""
    device = scenario.graph.ranks[number].record.recorded.device
    spans, kinds, rows = [], [], []
    for cycle in cycles:
        if cycle not in result.kept:
            continue
        step = scenario.ranks[number][order[cycle]]
        begin, end = result.kept[cycle]
        for index, kind in enumerate(step.kind):
            if kind in (HOST, SYNC):
                continue
            row = step.row[index]
            comm = kind == JOIN or (row >= 0 and bool(device.comm[row]))
            copies = row >= 0 and int(device.kind[row]) != KERNEL
            spans.append((begin[index], end[index]))
            kinds.append(1 if comm else 2 if copies else 0)
            rows.append(row)
    return np.array(spans).reshape(-1, 2), np.array(kinds, dtype=np.int64), np.array(rows, dtype=np.int64)


def _parts(scenario: Scenario, number: int, result: RankTimes, order: Sequence[int], window) -> Parts:
    cycles, start, end = window
    spans, kinds, _ = device_spans(scenario, number, result, order, cycles)
    whole = np.rint(spans).astype(np.int64)
    sets = [merge(whole[kinds == kind]) for kind in (0, 1, 2)]
    return split_window(round(start), max(round(end), round(start)), compute=sets[0], comm=sets[1], memory=sets[2])


def _divided(parts: Parts, count: int) -> Parts:
    """Returns the mean of `count` iterations; the parts sum to the window exactly."""
    values = {
        name: getattr(parts, name) // count
        for name in ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns")
    }
    window = parts.window_ns // count
    return Parts(window_ns=window, **values, idle_ns=window - sum(values.values()))


def bound_by(scenario: Scenario, speeds: Speeds) -> str:
    """Returns what bounds the iteration: the one of host, device and network that shortens it most when it is a
    little faster."""
    base = iteration_ns(scenario, speeds)
    gains = {}
    for name, field in ((DEVICE_BOUND, "device"), (NETWORK_BOUND, "network"), (HOST_BOUND, "host")):
        faster = Speeds(**{**vars(speeds), field: getattr(speeds, field) * (1 - _ELASTIC)})
        gains[name] = base - iteration_ns(scenario, faster)
    return max(gains, key=lambda name: gains[name])
