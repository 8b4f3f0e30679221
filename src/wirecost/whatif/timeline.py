"""One replayed iteration of every rank as pieces of work on streams, for pictures of before and after."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.trace.categories import KERNEL
from wirecost.whatif.measure import order_of, settled
from wirecost.whatif.nodes import HOST, JOIN, SYNC
from wirecost.whatif.scenario import Scenario
from wirecost.whatif.simulate import Speeds

COMPUTE, COMMUNICATION, COPY, ON_HOST = "compute", "communication", "copy", "host"


@dataclass(frozen=True)
class Piece:
    """A piece of work: `start_ns` and `end_ns` from the first of all ranks; `lane` is a stream's name, or
    `host`."""

    rank: int
    lane: str
    name: str
    kind: str
    start_ns: float
    end_ns: float


def pieces(scenario: Scenario, speeds: Speeds) -> list[Piece]:
    """Returns the work of the last whole replayed iteration."""
    order, _ = order_of(scenario)
    scenario = settled(scenario, speeds)
    cycle = len(order) - 2
    results = scenario.run(speeds, order, keep=[cycle])
    found: list[Piece] = []
    for number, (rank, result) in enumerate(zip(scenario.graph.ranks, results, strict=True)):
        device = rank.record.recorded.device
        step = scenario.ranks[number][order[cycle]]
        begin, end = result.kept[cycle]
        lanes = [f"stream {device.streams[int(s)][1]}" for s in sorted(set(device.stream.tolist()))]
        own = scenario.graph.ranks[number].rank
        for index, kind in enumerate(step.kind):
            if kind in (HOST, SYNC):
                name = "launch" if kind == HOST else "wait for the device"
                found.append(Piece(own, "host", name, ON_HOST, begin[index], end[index]))
                continue
            row = step.row[index]
            if kind == JOIN or (row >= 0 and device.comm[row]):
                what = COMMUNICATION
            else:
                what = COMPUTE if row < 0 or int(device.kind[row]) == KERNEL else COPY
            name = device.names[int(device.name[row])] if row >= 0 else scenario.collectives[step.join[index]].op
            found.append(Piece(own, lanes[step.stream[index]], name, what, begin[index], end[index]))
    if not found:
        return found
    zero = min(p.start_ns for p in found if p.kind != ON_HOST)
    return [Piece(p.rank, p.lane, p.name, p.kind, p.start_ns - zero, p.end_ns - zero) for p in found]
