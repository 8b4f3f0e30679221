"""The content of a study's report as data. Every output format shows these rows and computes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from wirecost.breakdown import Phase, ratio_of_medians, ratio_over_repeats
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.report.cells import Cell, Scale
from wirecost.report.records import (
    EXPECTATION_TOLERANCE,
    Benchmarked,
    Expectation,
    Links,
    Reported,
    SpeedUp,
    Unfinished,
)
from wirecost.report.what_if import Predicted, predictions_of
from wirecost.spec import DataParallel, GradientTraffic
from wirecost.study import Status
from wirecost.study.store import ResultSummary

__all__ = ["EXPECTATION_TOLERANCE", "MANY", "StudyReport"]

MANY = 4
"""If more experiments than this fail for one reason, they are counted instead of named."""

MOST_NAMED = 20
"""Damaged results beyond this number are counted instead of named."""

LARGE = 200
"""A study with more cells than this is shown as an overview; details are shown on request."""


@dataclass(frozen=True)
class StudyReport:
    """All of a study's results. `networks` run from the fastest (as measured) to the slowest.

    Properties that iterate over all cells are computed once and cached.
    """

    name: str
    cells: tuple[Cell, ...]
    networks: tuple[str, ...]
    environment: dict[str, object]
    not_shown: int = 0
    """Stored results that belong to no experiment of the last run study."""
    benchmarks: tuple[Benchmarked, ...] = ()
    left_out: tuple[Diagnostic, ...] = ()
    """Stored results that can't be used."""
    over_repeats: bool = False
    """Whether the samples of statistics are repeats of an experiment, not its iterations."""

    @property
    def is_large(self) -> bool:
        return len(self.cells) > LARGE

    @cached_property
    def plans(self) -> tuple[str, ...]:
        return _distinct(c.plan for c in self.cells)

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        return _distinct(c.workload for c in self.cells)

    def scales(self, plan: str) -> tuple[Scale, ...]:
        return self._scales.get(plan, ())

    @cached_property
    def _scales(self) -> dict[str, tuple[Scale, ...]]:
        by_plan: dict[str, set[Scale]] = {plan: set() for plan in self.plans}
        for cell in self.cells:
            by_plan[cell.plan].add(cell.scale)
        return {plan: tuple(sorted(scales)) for plan, scales in by_plan.items()}

    def cell(self, workload: str, network: str, plan: str, scale: Scale) -> Cell | None:
        return self._by_place.get((workload, network, plan, scale))

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str, Scale], Cell]:
        places: dict[tuple[str, str, str, Scale], Cell] = {}
        for cell in self.cells:
            places.setdefault((cell.workload, cell.network, cell.plan, cell.scale), cell)
        return places

    def rows(self, plan: str) -> list[tuple[str, str, list[Cell]]]:
        """Returns each (workload, network) with its cells under a plan, in the report's order."""
        return self._rows.get(plan, [])

    @cached_property
    def _rows(self) -> dict[str, list[tuple[str, str, list[Cell]]]]:
        workloads, networks = _places(self.workloads), _places(self.networks)
        by_plan: dict[str, dict[tuple[str, str], list[Cell]]] = {plan: {} for plan in self.plans}
        for (workload, network, plan, _), cell in self._by_place.items():
            by_plan[plan].setdefault((workload, network), []).append(cell)
        return {
            plan: [
                (*names, rows[names])
                for names in sorted(rows, key=lambda names: (workloads[names[0]], networks[names[1]]))
            ]
            for plan, rows in by_plan.items()
        }

    @cached_property
    def by_scale(self) -> dict[tuple[str, str, Scale], list[Cell]]:
        """Returns the cells of each (plan, workload, scale), from the fastest network to the slowest."""
        plans, workloads = _places(self.plans), _places(self.workloads)
        networks = _places(self.networks)
        groups: dict[tuple[str, str, Scale], list[Cell]] = {}
        for cell in self._by_place.values():
            groups.setdefault((cell.plan, cell.workload, cell.scale), []).append(cell)
        for cells in groups.values():
            cells.sort(key=lambda c: networks[c.network])
        return dict(sorted(groups.items(), key=lambda kv: (plans[kv[0][0]], workloads[kv[0][1]], kv[0][2])))

    @property
    def emulated(self) -> bool:
        return any(c.result.experiment.network.emulate is not None for c in self.cells)

    def links(self) -> list[Links]:
        return self._links

    @cached_property
    def _links(self) -> list[Links]:
        by_network: dict[str, list[Cell]] = {network: [] for network in self.networks}
        for cell in self.cells:
            by_network[cell.network].append(cell)
        rows = []
        for network, cells in by_network.items():
            known = [c.summary.network for c in cells if c.summary and c.summary.network]
            rates = [k.measured_rate_bps for k in known if k.measured_rate_bps]
            emulation = cells[0].result.experiment.network.emulate
            rows.append(
                Links(
                    network=network,
                    emulated=emulation is not None,
                    nominal_bps=emulation.rate if emulation else None,
                    slowest_bps=min(rates, default=None),
                    fastest_bps=max(rates, default=None),
                    mean_use_bps=max((k.mean_use_bps for k in known if k.mean_use_bps is not None), default=None),
                    peak_use_bps=max((k.peak_use_bps for k in known if k.peak_use_bps is not None), default=None),
                    transports=tuple(sorted({k.transport for k in known if k.transport})),
                )
            )
        return rows

    def network_label(self, network: str) -> str:
        """Returns the network's name, with `emulated` if it is emulated."""
        emulated = network in self._emulated_networks and "emulated" not in network
        return f"{network} (emulated)" if emulated else network

    @cached_property
    def _emulated_networks(self) -> set[str]:
        return {c.network for c in self.cells if c.result.experiment.network.emulate is not None}

    def speed_ups(self) -> list[SpeedUp]:
        """Returns the speed-ups of the fastest network over every other one, cell by cell. Cells without a result
        are left out.
        """
        return self._speed_ups

    @cached_property
    def _speed_ups(self) -> list[SpeedUp]:
        rows = []
        for (plan, workload, scale), cells in self.by_scale.items():
            done = [(c, c.summary.iteration_times_ns) for c in cells if c.summary]
            ratio_of = ratio_over_repeats if self.over_repeats else ratio_of_medians
            for cell, times_ns in done[1:]:
                fastest, fast_ns = done[0]
                ratio = ratio_of(times_ns, fast_ns)
                if ratio is not None:
                    disturbed = tuple(sorted({*cell.disturbed, *fastest.disturbed}))
                    rows.append(SpeedUp(workload, plan, scale, fastest.network, cell.network, ratio, disturbed))
        return rows

    def expectations(self) -> list[Expectation]:
        """Returns an expectation for every run over measured links that sends its gradients in one all-reduce
        after backward.
        """
        return self._expectations

    @cached_property
    def _expectations(self) -> list[Expectation]:
        rows = []
        for cell in self.cells:
            plan = cell.engine_plan
            if plan is None:
                continue
            several = plan.gradient_traffic in (GradientTraffic.INT8, GradientTraffic.POWERSGD)
            transfer = cell.summary.transfer if cell.summary else None
            if transfer is not None and plan.data_parallel is DataParallel.ALL_REDUCE and not several:
                rows.append(
                    Expectation(
                        cell, transfer.bytes_per_call, transfer.measured_ns, transfer.expected_ns, transfer.calls
                    )
                )
        return rows

    def diagnostics(self) -> list[Reported]:
        """Returns every diagnostic of the experiments, the most frequent first, then those of the store."""
        runs = (run for cell in self.cells for run in cell.runs)
        counts = Counter(d for run in runs if run.summary for d in run.summary.diagnostics)
        rows = [Reported(d, n) for d, n in counts.most_common()]
        if self.not_shown:
            message = "results of an earlier version of the study lie here too; they are kept and not shown"
            rows.append(Reported(diagnostic("earlier_study", message, count=self.not_shown), self.not_shown))
        return rows + [Reported(d, 1) for d in self._left_out()]

    def _left_out(self) -> list[Diagnostic]:
        """Returns the diagnostics of the results that can't be used; those beyond `MOST_NAMED` are summed up in
        one.
        """
        rows = [replace(d, message=f"left out: {d.message}") for d in self.left_out[:MOST_NAMED]]
        more = len(self.left_out) - MOST_NAMED
        if more > 0:
            rows.append(diagnostic("more_damaged_results", f"left out: {more} more", count=more))
        return rows

    @cached_property
    def what_ifs(self) -> list[Predicted]:
        """Predictions of cells from the traces of others, with what was measured; none for a large study."""
        networks = _places(self.networks)
        return [] if self.is_large else predictions_of(sorted(self.cells, key=lambda c: networks[c.network]))

    def unfinished(self) -> list[Unfinished]:
        """Returns the cells that failed, were skipped or ran out of memory. Many cells with the same reason are
        one entry, with the traceback of the first.
        """
        groups: dict[tuple[str, str], list[tuple[Cell, ResultSummary]]] = {}
        for cell in self.cells:
            for run in cell.runs:
                if run.outcome.status is not Status.DONE:
                    key = run.outcome.status, run.outcome.reason or "no reason known"
                    groups.setdefault(key, []).append((cell, run))
        rows = []
        for (status, reason), runs in groups.items():
            if len(runs) > MANY:
                traceback = runs[0][1].outcome.traceback
                rows.append(Unfinished(status, f"{len(runs)} experiments", reason, traceback))
                continue
            for c, run in runs:
                what = f"{c.workload} on {c.network}, {c.plan}, {c.scale.label}"
                repeat = f", repeat {run.experiment.repeat}" if self.over_repeats else ""
                rows.append(Unfinished(status, f"{what}{repeat}", reason, run.outcome.traceback))
        return rows

    @property
    def samples(self) -> str:
        """Returns what the samples of the statistics are."""
        return "repeats" if self.over_repeats else "iterations"

    @cached_property
    def disturbed(self) -> tuple[str, ...]:
        """Returns the codes of what disturbed experiments."""
        return tuple(sorted({code for cell in self.cells for code in cell.disturbed}))

    @cached_property
    def predicted(self) -> bool:
        """Returns whether a table shows predictions in cells that were not measured."""
        return any(c.predicted_fraction is not None for c in self.cells)

    def phases(self) -> list[Phase]:
        """Returns the phases that occur, in the order of an iteration."""
        recorded = {phase for c in self.cells if c.summary for phase in c.summary.phases_ns}
        return [phase for phase in Phase if phase in recorded]


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}
