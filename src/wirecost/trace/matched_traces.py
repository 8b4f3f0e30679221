"""`MatchedTraces`: the traces of a run, with their collectives matched over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from wirecost.breakdown import Breakdown, Collective, Iteration, Source
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.trace.blame import Straggler, stragglers
from wirecost.trace.clocks import ClockOffset
from wirecost.trace.collective_rows import CollectiveRow, collective_rows
from wirecost.trace.comm_parts import CommParts, comm_parts
from wirecost.trace.compare_ranks import (
    Exposed,
    Imbalance,
    complete,
    imbalance,
    steady_iterations,
    top_exposed,
)
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.explained import Cause, Explained
from wirecost.trace.matched import Matched
from wirecost.trace.profiler_cost import ProfilerCost, profiler_cost
from wirecost.trace.rank import RankTrace
from wirecost.trace.recorded import Int64
from wirecost.trace.waits import find_waits


class MatchedTraces:
    """The traces of one run in order of rank, their matched collectives, and the answers that need nothing else.

    Times are in ns.

    Attributes:
        run_diagnostics: the diagnostics of all files together; those of one trace are in its own `diagnostics`.
    """

    def __init__(
        self, traces: Sequence[RankTrace], diagnostics: DiagnosticCounts, *, step_time_ns: int | None = None
    ) -> None:
        self.traces = list(traces)
        self.step_time_ns = step_time_ns
        waits = find_waits(self.traces, diagnostics)
        self.matched: list[Matched] = waits.matched
        self.clocks: list[ClockOffset] = waits.clocks
        diagnostics.add("first_collective", sum(m.first for m in self.matched))
        self.run_diagnostics: list[Diagnostic] = diagnostics.listed()
        self.stragglers: list[Straggler] = stragglers(self.traces, self.matched)
        self.imbalance: list[Imbalance] = imbalance(self.traces)

    @property
    def world_size(self) -> int:
        """The largest world size that a trace records or that its ranks imply."""
        recorded_sizes = [t.world_size or 0 for t in self.traces]
        return max([*recorded_sizes, len(self.traces), *((t.rank or 0) + 1 for t in self.traces)])

    @cached_property
    def waits(self) -> list[Int64]:
        """For each trace the wait of each of its calls in ns; -1 is unknown."""
        number = {t.rank or 0: i for i, t in enumerate(self.traces)}
        waits_ns = [np.full(len(t.calls), -1, dtype=np.int64) for t in self.traces]
        for m in self.matched:
            for rank, call, wait in zip(m.ranks, m.calls, m.wait_ns, strict=True):
                waits_ns[number[rank]][call] = wait
        return waits_ns

    @cached_property
    def comm_parts(self) -> list[CommParts]:
        """For each iteration of each rank what its exposed communication goes to."""
        return comm_parts(self.traces, self.matched)

    @cached_property
    def collective_rows(self) -> list[CollectiveRow]:
        """Each operation in each process group of each rank, summed over its calls."""
        return list(collective_rows(self.traces, self.matched, self.waits))

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
        """The time that the profiler added to an iteration, from the job's own step time; None if that isn't
        given.
        """
        return profiler_cost(self.traces, self.step_time_ns)

    @cached_property
    def breakdown(self) -> Breakdown:
        """The imported `Breakdown` of the iterations of `steady_iterations`. If some are left out because the
        recording cuts them, a diagnostic says so. A trace without iterations counts with its whole window."""
        iterations: list[Iteration] = []
        cut = sum(
            len(t.iterations) - len(rows) for t, rows in zip(self.traces, complete(self.traces), strict=True)
        )
        for trace, rows in zip(self.traces, steady_iterations(self.traces), strict=True):
            rank = trace.rank or 0
            iterations += [
                Iteration(rank=rank, name=i.window.name, parts=i.parts, start_ns=i.window.start_ns)
                for i in (trace.iterations[n] for n in rows)
            ]
            if not trace.iterations and trace.parts is not None:
                iterations.append(Iteration(rank=rank, name="whole", parts=trace.parts, start_ns=trace.start_ns))
        diagnostics = [
            replace(d, subject=f"rank {t.rank}" if t.rank is not None else None)
            for t in self.traces
            for d in t.diagnostics
        ]
        diagnostics += self.run_diagnostics
        if cut:
            diagnostics.append(diagnostic("cut_steps_left_out", f"{cut} cut steps are left out", count=cut))
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
            diagnostics=tuple(diagnostics),
            details={"files": [t.file for t in self.traces]},
        )  # fmt: skip
