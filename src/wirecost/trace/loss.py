"""The type of a loss, and the evidence that the rules use."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.idle import IdleUse
from wirecost.trace.lateness import Lateness, lateness
from wirecost.trace.loads import RankLoad, loads
from wirecost.trace.matched_traces import MatchedTraces
from wirecost.trace.places import Place


class Loss(msgspec.Struct):
    """A loss and its cause in plain words: a full `text` and a `brief` one that fits a line.

    `gain_ns` (per iteration) and `gain_share` (of the iteration) are upper bounds of the gain. `ranks` are the
    ranks responsible, empty if all are. `remedy` is what to try or run next.
    """

    code: str
    text: str
    gain_ns: float
    gain_share: float
    condition: str
    remedy: str
    ranks: list[int]
    brief: str
    place: Place | None = None


class Evidence:
    """The input of the rules: the loads of all ranks, the late ranks, the hosts' activity and the iteration's
    length.
    """

    def __init__(self, s: MatchedTraces) -> None:
        self.traces = s
        self.loads = loads(s)
        self.late: Lateness = lateness(s)
        self.iteration_ns = max((load.window_ns for load in self.loads), default=0.0)
        self.iterations = max((load.iterations for load in self.loads), default=0)
        self.unit = "of an iteration" if self.iterations else "of the recorded window"
        self.processor = "GPU" if all(t.device == "gpu" for t in s.traces) else "processor"

    def late_loads(self) -> list[RankLoad]:
        return [load for load in self.loads if load.rank in self.late.ranks]

    def other_loads(self) -> list[RankLoad]:
        """Returns the loads of the ranks that aren't late; of all ranks if every rank is late."""
        return [load for load in self.loads if load.rank not in self.late.ranks] or self.loads

    def idle_use(self, listed: Iterable[RankLoad]) -> IdleUse:
        """Returns the idle time of these ranks by cause, summed over their iterations."""
        ranks = {load.rank for load in listed}
        uses = [
            t.idle[n]
            for t, steady in zip(self.traces.traces, steady_iterations(self.traces.traces), strict=True)
            if t.rank in ranks and t.idle
            for n in (steady if t.iterations else [0])
        ]
        fields = IdleUse.__struct_fields__
        return IdleUse(**{name: sum(getattr(use, name) for use in uses) for name in fields})

    def loss(
        self,
        code: str,
        gain_ns: float,
        text: str,
        condition: str,
        remedy: str,
        *,
        brief: str = "",
        ranks: Sequence[int] = (),
        place: Place | None = None,
    ) -> Loss:
        """Returns a loss whose gain is at most the iteration. `brief` defaults to `text`."""
        gain_ns = max(0.0, min(gain_ns, self.iteration_ns))
        share = gain_ns / self.iteration_ns if self.iteration_ns else 0.0
        return Loss(code, text, gain_ns, share, condition, remedy, list(ranks), brief or text, place)

    def share(self, ns: float) -> str:
        return f"{ns / self.iteration_ns:.0%}" if self.iteration_ns else "0%"


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0


def typical(values: Iterable[float]) -> float:
    """Returns the lower median: a value that at least half of the ranks reach."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0
