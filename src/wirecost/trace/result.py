"""`TraceSet`: everything that a set of traces says, as tables, as a `Breakdown`, and in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from wirecost.breakdown import Breakdown, Collective, Iteration, Source
from wirecost.diagnostics import diagnostic
from wirecost.trace.blame import Straggler, stragglers
from wirecost.trace.clocks import ClockOffset
from wirecost.trace.comm_parts import CommParts, comm_parts
from wirecost.trace.compare_ranks import Exposed, Imbalance, imbalance, top_exposed
from wirecost.trace.explained import Cause, Explained
from wirecost.trace.matched import Matched
from wirecost.trace.operations import bus_factor
from wirecost.trace.problems import Problem, Problems
from wirecost.trace.profiler_cost import ProfilerCost, profiler_cost
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import Int64
from wirecost.trace.waits import find_waits

if TYPE_CHECKING:
    import polars

    from wirecost.trace.answer import Answer
    from wirecost.trace.loss import Loss
    from wirecost.trace.summary import Finding


class CollectiveRow(msgspec.Struct):
    """One operation in one process group on one rank, summed over its calls; None is unknown.

    `wait_ns` and `transfer_ns` are sums over the `matched` calls and rest on `basis` (see `matched.Matched`).
    Bandwidth is the bytes over the transfer where that is known for all calls, else over the duration
    (`bandwidth_from`), a lower bound.
    """

    rank: int | None
    op: str
    group: str
    group_size: int | None
    count: int
    bytes: int | None
    duration_ns: int
    exposed_ns: int
    matched: int
    wait_ns: int | None
    transfer_ns: int | None
    basis: str | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    bandwidth_from: str | None


class TraceSet:
    """Traces of one run, in order of rank. Tables are polars DataFrames; times in ns, bandwidths in bytes/s."""

    def __init__(
        self, traces: Sequence[RankTrace], problems: Problems, *, step_time_ns: int | None = None
    ) -> None:
        self.traces = list(traces)
        self.step_time_ns = step_time_ns
        set_problems = problems
        waits = find_waits(self.traces, set_problems)
        self.matched: list[Matched] = waits.matched
        self.clocks: list[ClockOffset] = waits.clocks
        first = sum(m.first for m in self.matched)
        set_problems.add("first_collective", first)
        self.set_problems: list[Problem] = set_problems.listed()
        self.stragglers: list[Straggler] = stragglers(self.traces, self.matched)
        self.imbalance: list[Imbalance] = imbalance(self.traces)

    @property
    def world_size(self) -> int:
        """The largest world a trace tells of, or as many as there are."""
        told = [t.world_size or 0 for t in self.traces]
        return max([*told, len(self.traces), *((t.rank or 0) + 1 for t in self.traces)])

    @cached_property
    def waits(self) -> list[Int64]:
        """For each trace the wait of each of its calls in ns, -1 where it isn't known."""
        number = {t.rank or 0: i for i, t in enumerate(self.traces)}
        found = [np.full(len(t.calls), -1, dtype=np.int64) for t in self.traces]
        for m in self.matched:
            for rank, call, wait in zip(m.ranks, m.calls, m.wait_ns, strict=True):
                found[number[rank]][call] = wait
        return found

    @cached_property
    def comm_parts(self) -> list[CommParts]:
        """For each iteration of each rank what its exposed communication goes to."""
        return comm_parts(self.traces, self.matched)

    @cached_property
    def collective_rows(self) -> list[CollectiveRow]:
        basis: dict[tuple[int, str, str], set[str]] = {}
        for m in self.matched:
            for rank in m.ranks:
                basis.setdefault((rank, m.op, m.group), set()).add(m.basis)
        rows = []
        for trace, wait in zip(self.traces, self.waits, strict=True):
            calls = trace.calls
            for op, group in sorted({(int(o), int(g)) for o, g in zip(calls.op, calls.group, strict=True)}):
                mask = (calls.op == op) & (calls.group == group)
                grounds = basis.get((trace.rank or 0, calls.ops[op], calls.groups[group]), set())
                rows.append(_row(trace, (op, group), mask, wait[mask], grounds))
        return rows

    @cached_property
    def explained(self) -> Explained:
        """The exposed time of every call by cause."""
        return Explained(self.traces, self.matched)

    @cached_property
    def causes(self) -> list[Cause]:
        """Why communication is exposed, over all ranks and iterations, the largest cause first."""
        return self.explained.causes(self.explained.calls_in_iterations())

    @cached_property
    def exposed(self) -> list[Exposed]:
        return top_exposed(self.traces, self.explained)

    @cached_property
    def profiler_cost(self) -> ProfilerCost | None:
        """What the profiler added to an iteration, by the job's own step time; None where that isn't given."""
        return profiler_cost(self.traces, self.step_time_ns)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the time goes to, largest loss first, and what to try."""
        from wirecost.trace.summary import findings

        return findings(self)

    @cached_property
    def losses(self) -> list[Loss]:
        """What an iteration loses and why, by what could be won at most; the largest first."""
        from wirecost.trace.diagnosis import losses

        return losses(self)

    @cached_property
    def answer(self) -> Answer:
        """The answer in five lines, and what they rest on."""
        from wirecost.trace.answer import answer

        return answer(self)

    @property
    def warnings(self) -> list[str]:
        """Why the numbers may not be what they seem, one sentence an item."""
        from wirecost.trace.summary import warnings

        return warnings(self)

    @property
    def summary(self) -> list[str]:
        """The same in plain sentences."""
        from wirecost.trace.summary import sentences

        return sentences(self)

    @cached_property
    def breakdown(self) -> Breakdown:
        """The imported `Breakdown`. Steps that the recording cuts are left out, with a warning, unless all are;
        a trace without iterations counts with its whole window."""
        iterations, cut = [], 0
        every_cut = all(i.window.cut for t in self.traces for i in t.iterations)
        for trace in self.traces:
            rank = trace.rank or 0
            for i in trace.iterations:
                if i.window.cut and not every_cut:
                    cut += 1
                    continue
                iterations.append(
                    Iteration(rank=rank, name=i.window.name, parts=i.parts, start_ns=i.window.start_ns)
                )
            if not trace.iterations and trace.parts is not None:
                iterations.append(Iteration(rank=rank, name="whole", parts=trace.parts, start_ns=trace.start_ns))
        warnings = [
            diagnostic(p.code, f"rank {t.rank}: {p.message}" if t.rank is not None else p.message)
            for t in self.traces
            for p in t.problems
        ]
        warnings += [diagnostic(p.code, p.message) for p in self.set_problems]
        if cut:
            warnings.append(diagnostic("cut_steps_left_out", f"{cut} cut steps are left out"))
        return Breakdown(
            source=Source.IMPORTED,
            title=f"profiler traces of {len(self.traces)} of {self.world_size} ranks",
            world_size=self.world_size,
            iterations=tuple(iterations),
            collectives=tuple(
                Collective(
                    rank=r.rank, op=r.op, group=r.group, group_size=r.group_size, count=r.count, bytes=r.bytes,
                    duration_ns=r.duration_ns, wait_ns=r.wait_ns, transfer_ns=r.transfer_ns, busbw_Bps=r.busbw_Bps,
                )
                for r in self.collective_rows
            ),
            diagnostics=tuple(warnings),
            details={"files": [t.file for t in self.traces]},
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented JSON form (docs/how-to/trace.md)."""
        from wirecost.trace.tables import as_dict

        return as_dict(self)

    def table(self, name: str) -> polars.DataFrame:
        """Returns one of `tables.NAMES` as a DataFrame."""
        from wirecost.trace.tables import frame

        return frame(self, name)

    @property
    def ranks(self) -> polars.DataFrame:
        return self.table("ranks")

    @property
    def iterations(self) -> polars.DataFrame:
        return self.table("iterations")

    @property
    def collectives(self) -> polars.DataFrame:
        return self.table("collectives")

    @property
    def calls(self) -> polars.DataFrame:
        return self.table("calls")

    @property
    def skew(self) -> polars.DataFrame:
        return self.table("skew")

    @property
    def problems(self) -> polars.DataFrame:
        return self.table("problems")


def _row(trace: RankTrace, key: tuple[int, int], mask: Any, wait: Int64, grounds: set[str]) -> CollectiveRow:
    (op, group), calls = key, trace.calls
    duration = calls.end_ns[mask] - calls.start_ns[mask]
    sizes, members = calls.bytes[mask], calls.group_size[mask]
    known = wait >= 0
    total = int(sizes.sum()) if (sizes >= 0).all() else None
    size = int(members.max(initial=-1))
    waited = int(wait[known].sum()) if known.any() else None
    transfer = int((duration - wait)[known].sum()) if known.any() else None
    time = transfer if known.all() else int(duration.sum())
    factor = bus_factor(calls.ops[op], size if size > 0 else None)
    algbw = total / (time * 1e-9) if total is not None and time else None
    return CollectiveRow(
        rank=trace.rank,
        op=calls.ops[op],
        group=calls.groups[group],
        group_size=size if size > 0 else None,
        count=int(mask.sum()),
        bytes=total,
        duration_ns=int(duration.sum()),
        exposed_ns=int(calls.exposed_ns[mask].sum()),
        matched=int(known.sum()),
        wait_ns=waited,
        transfer_ns=transfer,
        basis="+".join(sorted(grounds)) if known.any() else None,
        algbw_Bps=algbw,
        busbw_Bps=algbw * factor if algbw is not None and factor is not None else None,
        bandwidth_from=None if algbw is None else "transfer" if known.all() else "duration",
    )
