"""What a study says, as data: every output format shows these rows and computes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from wirecost.breakdown import Breakdown, Phase, Ratio, ratio_of_medians
from wirecost.report.cells import Cell, Scale, to_cells
from wirecost.spec import DataParallel, GradientTraffic
from wirecost.study import Result, Status, Store
from wirecost.study.manifest import read_regular
from wirecost.study.matched import Matched
from wirecost.study.networks import Site, read_benchmark, sites, why_not
from wirecost.study.store import Damaged, Outcome, StoreError
from wirecost.units import format_rate_bps

MOST_NAMED = 20
"""Damaged results beyond this number are counted."""
MANY = 4
"""More experiments than this that end for one reason are not named one by one."""

EXPECTATION_TOLERANCE = 0.15
"""How far a measured transfer may lie from bytes / measured rate before the report says so."""


@dataclass(frozen=True)
class Links:
    """What a network gave over all its runs; None where it wasn't measured. `nominal_bps` None: without a cap, or
    a native network, whose rate nobody stated."""

    network: str
    emulated: bool
    nominal_bps: float | None
    slowest_bps: float | None
    fastest_bps: float | None
    mean_use_bps: float | None = None
    """What the busiest interface moved during the iterations of the run that used the link most."""
    peak_use_bps: float | None = None
    transports: tuple[str, ...] = ()
    """As reported in use (by NCCL's log); more than one where runs differ."""

    @property
    def transport(self) -> str:
        return ", ".join(self.transports) or "unknown"

    @property
    def use(self) -> str | None:
        """Mean and peak use in words, as shares of the slowest measured rate where there is one."""
        if self.mean_use_bps is None or self.peak_use_bps is None:
            return None
        return f"mean {self._share(self.mean_use_bps)}, peak {self._share(self.peak_use_bps)}"

    def _share(self, used_bps: float) -> str:
        share = f" ({used_bps / self.slowest_bps:.0%})" if self.slowest_bps else ""
        return f"{format_rate_bps(used_bps, 3)}{share}"

    @property
    def nominal(self) -> str:
        if self.nominal_bps:
            return format_rate_bps(self.nominal_bps, 3)
        return "uncapped" if self.emulated else "unknown"


@dataclass(frozen=True)
class SpeedUp:
    """How much shorter an iteration is on `fast` than on `slow`, everything else equal."""

    workload: str
    plan: str
    scale: Scale
    fast: str
    slow: str
    ratio: Ratio


@dataclass(frozen=True)
class Expectation:
    """The measured transfer of one all-reduce after backward (each rank's median over calls, the mean over
    ranks) beside bytes / measured link rate."""

    cell: Cell
    bytes_per_call: float
    measured_ns: float
    expected_ns: float
    calls: int

    @property
    def deviation(self) -> float:
        return self.measured_ns / self.expected_ns - 1

    @property
    def holds(self) -> bool:
        return abs(self.deviation) <= EXPECTATION_TOLERANCE


@dataclass(frozen=True)
class Benchmarked:
    """A network's all-reduce benchmark before training: `measured_Bps` is the largest message's bus bandwidth,
    `fitted_Bps` what longer ones tend to. None is unknown; `remark` says why."""

    network: str
    hosts: int
    ranks: int
    latency_ns: float | None
    largest_bytes: int | None
    measured_Bps: float | None
    fitted_Bps: float | None
    left_out_error: float | None
    remark: str | None


@dataclass(frozen=True)
class Unfinished:
    """Experiments (`what`) without a result, and why."""

    status: str
    what: str
    reason: str
    traceback: str | None = None


@dataclass(frozen=True)
class StudyReport:
    """All of a study's results. `networks` run from the fastest (as measured) to the slowest."""

    name: str
    cells: tuple[Cell, ...]
    networks: tuple[str, ...]
    environment: dict[str, object]
    not_shown: int = 0
    """Results that lie here and belong to no experiment of the study as last run."""
    benchmarks: tuple[Benchmarked, ...] = ()
    left_out: tuple[str, ...] = ()
    """What lies here and can't be used, a line each: the result's name and why."""

    @property
    def plans(self) -> tuple[str, ...]:
        return _distinct(c.plan for c in self.cells)

    @property
    def workloads(self) -> tuple[str, ...]:
        return _distinct(c.workload for c in self.cells)

    def scales(self, plan: str) -> tuple[Scale, ...]:
        return tuple(sorted({c.scale for c in self.cells if c.plan == plan}))

    def cell(self, workload: str, network: str, plan: str, scale: Scale) -> Cell | None:
        for cell in self.cells:
            if (cell.workload, cell.network, cell.plan, cell.scale) == (workload, network, plan, scale):
                return cell
        return None

    @property
    def emulated(self) -> bool:
        return any(c.result.experiment.network.emulate is not None for c in self.cells)

    def links(self) -> list[Links]:
        found = []
        for network in self.networks:
            known = [c.breakdown.network for c in self.cells if c.network == network and c.breakdown]
            rates = [k.measured_rate_bps for k in known if k and k.measured_rate_bps]
            emulation = next(c.result.experiment.network.emulate for c in self.cells if c.network == network)
            nominal = emulation.rate if emulation else None
            emulated = emulation is not None
            used = tuple(sorted({k.transport for k in known if k and k.transport}))
            slowest, fastest = min(rates, default=None), max(rates, default=None)
            mean = max((k.mean_use_bps for k in known if k and k.mean_use_bps is not None), default=None)
            peak = max((k.peak_use_bps for k in known if k and k.peak_use_bps is not None), default=None)
            found.append(Links(network, emulated, nominal, slowest, fastest, mean, peak, used))
        return found

    def network_label(self, network: str) -> str:
        """The name, with `emulated` where it is, results or not."""
        emulated = any(c.result.experiment.network.emulate for c in self.cells if c.network == network)
        return f"{network} (emulated)" if emulated and "emulated" not in network else network

    def speed_ups(self) -> list[SpeedUp]:
        """The fastest network against every other, cell by cell; cells without a result are left out."""
        found = []
        for plan in self.plans:
            for workload in self.workloads:
                for scale in self.scales(plan):
                    done = [
                        (n, c.breakdown)
                        for n in self.networks
                        if (c := self.cell(workload, n, plan, scale)) and c.breakdown
                    ]
                    for slow, breakdown in done[1:]:
                        ratio = ratio_of_medians(breakdown.iteration_times_ns(), done[0][1].iteration_times_ns())
                        if ratio is not None:
                            found.append(SpeedUp(workload, plan, scale, done[0][0], slow, ratio))
        return found

    def expectations(self) -> list[Expectation]:
        """For every run over measured links whose gradients go in one all-reduce after backward."""
        found = []
        for cell in self.cells:
            plan = cell.result.experiment.plan
            several = plan.gradient_traffic in (GradientTraffic.INT8, GradientTraffic.POWERSGD)
            if cell.breakdown is None or plan.data_parallel is not DataParallel.ALL_REDUCE or several:
                continue
            known = [
                (c.count, c.bytes, c.transfer_median_ns, c.expected_ns)
                for c in cell.breakdown.collectives
                if c.bytes is not None and c.transfer_median_ns is not None and c.expected_ns is not None
            ]
            calls = sum(count for count, *_ in known)
            if calls:
                found.append(
                    Expectation(
                        cell,
                        sum(size for _, size, *_ in known) / calls,
                        sum(transfer for *_, transfer, _ in known) / len(known),
                        sum(expected for *_, expected in known) / calls,
                        known[0][0],
                    )
                )
        return found

    def warnings(self) -> list[tuple[str, str, int]]:
        """(code, message, number of experiments) of every remark, the most frequent first."""
        counts: dict[tuple[str, str], int] = {}
        for cell in self.cells:
            for warning in cell.breakdown.warnings if cell.breakdown else ():
                key = (warning.code, warning.message)
                counts[key] = counts.get(key, 0) + 1
        found = [(code, message, n) for (code, message), n in sorted(counts.items(), key=lambda kv: -kv[1])]
        if self.not_shown:
            message = "results of an earlier version of the study lie here too; they are kept and not shown"
            found.append(("earlier_study", message, self.not_shown))
        return found + [("damaged", message, 1) for message in self._left_out()]

    def _left_out(self) -> list[str]:
        named = [f"left out: {line}" for line in self.left_out[:MOST_NAMED]]
        if len(self.left_out) > MOST_NAMED:
            named.append(f"left out: {len(self.left_out) - MOST_NAMED} more")
        if named:
            named[-1] += "; wirecost study run --resume --repair runs damaged results again"
        return named

    def unfinished(self) -> list[Unfinished]:
        """Cells that failed or were skipped, or ran out of memory; many with one reason are one entry, with the
        first one's traceback."""
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.cells:
            outcome = cell.result.outcome
            if outcome.status is not Status.DONE:
                groups.setdefault((outcome.status, outcome.reason or "no reason known"), []).append(cell)
        found = []
        for (status, reason), cells in groups.items():
            if len(cells) > MANY:
                one = cells[0].result.outcome.traceback
                found.append(Unfinished(status, f"{len(cells)} experiments", reason, one))
                continue
            for c in cells:
                what = f"{c.workload} on {c.network}, {c.plan}, {c.scale.label}"
                found.append(Unfinished(status, what, reason, c.result.outcome.traceback))
        return found

    @property
    def predicted(self) -> bool:
        """Whether a table shows predictions, in cells that were not measured."""
        return any(c.predicted_fraction is not None for c in self.cells)

    def phases(self) -> list[Phase]:
        """The phases that occur, in the order of an iteration."""
        seen = {p for c in self.cells if c.breakdown for i in c.breakdown.iterations for p in i.phases}
        return [p for p in Phase if p in seen]


def read_report(
    directory: Path, predictions: Mapping[str, Breakdown] | None = None, *, damaged: Sequence[Damaged] = ()
) -> StudyReport:
    """Reads a study's directory.

    Args:
        predictions: predicted breakdowns by the experiment's slug; the study's cells that were not run are then
            there, too.
        damaged: results known to be damaged, from reading more of them than is read here.

    Raises:
        StoreError: if it holds no results that can be used; damaged ones are left out and said.
    """
    store = Store(directory)
    contents = store.contents().without(damaged)
    said = Matched(predictions or {})
    found = results = list(contents.results)
    not_shown = 0
    if contents.study is not None:
        # A study that was edited and run again must not mix with what it was before.
        planned = {e.slug: e for e in contents.study.experiments()}
        results = [r for r in found if r.directory.name in planned]
        ran = {r.directory.name for r in results}
        not_shown = len(found) - len(results)
        results += [
            Result(e, Outcome(status=Status.SKIPPED, reason="not run"), None, store.experiments / slug)
            for slug, e in planned.items()
            if slug not in ran and said.of(slug) is not None
        ]
    if not results and contents.damaged:
        first = contents.damaged[0]
        raise StoreError(
            f"{directory}: none of its results can be used: {len(contents.damaged)} are damaged, first "
            f"{first.name} ({first.reason}); run them again with: wirecost study run --resume --repair"
        )
    if not found or not results:
        raise StoreError(
            f"{directory}: no experiment has finished here yet; go on with: wirecost study run --resume"
        )
    cells = to_cells(results, said)
    if predictions and not any(c.predicted for c in cells):
        raise StoreError(f"{directory}: none of its cells was predicted: were they predicted from the same study?")
    name = contents.study.name if contents.study else directory.name
    networks = _by_speed(cells)
    benchmarks = _benchmarks(store, cells, networks)
    remarks = tuple(contents.remarks())
    return StudyReport(name, cells, networks, _environment(results), not_shown, benchmarks, remarks)


def _benchmarks(store: Store, cells: Iterable[Cell], networks: tuple[str, ...]) -> tuple[Benchmarked, ...]:
    found = []
    names = {Site.of(c.result.experiment).slug: c.network for c in cells}
    for site in sites(c.result.experiment for c in cells):
        try:
            document, failure = read_benchmark(store, site), why_not(store, site)
        except StoreError as error:
            document, failure = None, str(error)
        fit = next(iter(document.fits), None) if document else None
        largest = max(document.rows, key=lambda r: r.size_bytes) if document and document.rows else None
        if largest or failure:
            found.append(
                Benchmarked(
                    network=names[site.slug],
                    hosts=site.hosts,
                    ranks=site.ranks,
                    latency_ns=fit.latency_ns if fit else None,
                    largest_bytes=largest.size_bytes if largest else None,
                    measured_Bps=largest.busbw_Bps if largest else None,
                    fitted_Bps=fit.bus_bandwidth_Bps if fit else None,
                    left_out_error=fit.median_left_out_error if fit else None,
                    remark=fit.refused if fit else failure,
                )
            )
    return tuple(sorted(found, key=lambda b: (networks.index(b.network), b.ranks)))


def _by_speed(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Networks by their measured rate: those inside a host first, those never measured last."""

    def rate(network: str, of: list[Cell]) -> float:
        if any(c.result.experiment.network.inside for c in of):
            return -math.inf
        rates = [c.breakdown.network.measured_rate_bps or 0.0 for c in of if c.breakdown and c.breakdown.network]
        return -max(rates, default=0.0)

    ordered = sorted(cells, key=lambda c: c.network)
    groups = {network: list(of) for network, of in groupby(ordered, key=lambda c: c.network)}
    return tuple(sorted(groups, key=lambda n: (rate(n, groups[n]), n)))


def _environment(results: Iterable[Result]) -> dict[str, object]:
    """The first result's that has one; empty where none has."""
    for result in results:
        try:
            found = json.loads(read_regular(result.directory / "environment.json"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("packages", {}), dict):
            return found
    return {}


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
