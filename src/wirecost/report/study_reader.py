"""Reads the report of a study from the folder of its results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.prediction.matched import Matched
from wirecost.report.cells import Cell, to_cells
from wirecost.report.records import Benchmarked
from wirecost.report.study_report import StudyReport
from wirecost.spec import JobExperiment
from wirecost.study import Status, Store
from wirecost.study.manifest import read_regular
from wirecost.study.networks import Site, read_benchmark, sites, why_not
from wirecost.study.store import Damaged, Outcome, ResultSummary, StoreError


def read_report(
    directory: Path, predictions: Mapping[str, Breakdown] | None = None, *, damaged: Sequence[Damaged] = ()
) -> StudyReport:
    """Reads the report of the study in a directory.

    Args:
        predictions: predicted breakdowns by the experiment's slug. With predictions the report also has the cells
            that were not run.
        damaged: results that a more thorough check has recognised as damaged.

    Raises:
        StoreError: if it holds no usable results. Damaged ones are left out with a diagnostic.
    """
    store = Store(directory)
    contents = store.summaries().without(damaged)
    matched = Matched(predictions or {})
    results = list(contents.results)
    not_shown = 0
    if contents.study is not None:
        # Results of a study that was edited and run again must not mix with those from before.
        planned = {e.slug: e for e in contents.planned}
        results = [r for r in contents.results if r.directory.name in planned]
        ran = {r.directory.name for r in results}
        not_shown = len(contents.results) - len(results)
        if contents.results:
            results += [
                ResultSummary(e, Outcome(status=Status.SKIPPED, reason="not run"), None, store.experiments / slug)
                for slug, e in planned.items()
                if slug not in ran and matched.of(e.common_slug) is not None
            ]
    if not results and contents.damaged:
        first = contents.damaged[0]
        raise StoreError(
            f"{directory}: none of its results can be used: {len(contents.damaged)} are damaged, first "
            f"{first.name} ({first.reason}); run them again with: wirecost study run --resume --repair"
        )
    if not results:
        raise StoreError(
            f"{directory}: no experiment has finished here yet; go on with: wirecost study run --resume"
        )
    over_repeats = contents.study.repeats > 1 if contents.study else any(r.experiment.repeat > 1 for r in results)
    cells = to_cells(results, matched, over_repeats=over_repeats)
    if predictions and not any(c.predicted for c in cells):
        raise StoreError(f"{directory}: none of its cells was predicted: were they predicted from the same study?")
    name = contents.study.name if contents.study else directory.name
    networks = _by_speed(cells)
    benchmarks = _benchmarks(store, cells, networks)
    left_out = tuple(contents.diagnostics())
    return StudyReport(name, cells, networks, _environment(results), not_shown, benchmarks, left_out, over_repeats)


def _benchmarks(store: Store, cells: Iterable[Cell], networks: tuple[str, ...]) -> tuple[Benchmarked, ...]:
    benchmarks = []
    # Cells with the same network share one network object. Computing a site's slug is slow.
    places = {}
    for c in cells:
        e = c.result.experiment
        device = None if isinstance(e, JobExperiment) else e.device
        places[id(e.network), e.hosts, e.ranks_per_host, device] = c
    names = {Site.of(c.result.experiment).slug: c.network for c in places.values()}
    for site in sites(c.result.experiment for c in places.values()):
        try:
            document, failure = read_benchmark(store, site), why_not(store, site)
        except StoreError as error:
            document, failure = None, str(error)
        fit = next(iter(document.fits), None) if document else None
        largest = max(document.rows, key=lambda r: r.size_bytes) if document and document.rows else None
        if largest or failure:
            benchmarks.append(
                Benchmarked(
                    network=names[site.slug],
                    hosts=site.hosts,
                    ranks=site.ranks,
                    latency_ns=fit.latency_ns if fit else None,
                    largest_bytes=largest.size_bytes if largest else None,
                    measured_Bps=largest.busbw_Bps if largest else None,
                    fitted_Bps=fit.bus_bandwidth_Bps if fit else None,
                    left_out_error=fit.median_left_out_error if fit else None,
                    reason=fit.refused if fit else failure,
                )
            )
    order = {network: place for place, network in enumerate(networks)}
    return tuple(sorted(benchmarks, key=lambda b: (order[b.network], b.ranks)))


def _by_speed(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Returns the networks by descending measured rate: those inside a host first, those never measured last."""
    rates_bps: dict[str, float] = {}
    for cell in cells:
        known = cell.summary.network if cell.summary else None
        rate_bps = known.measured_rate_bps or 0.0 if known else 0.0
        if cell.result.experiment.network.inside:
            rate_bps = math.inf
        rates_bps[cell.network] = max(rates_bps.get(cell.network, 0.0), rate_bps)
    return tuple(sorted(rates_bps, key=lambda network: (-rates_bps[network], network)))


def _environment(results: Iterable[ResultSummary]) -> dict[str, object]:
    """Returns the environment of the first result that has one; empty if none has."""
    for result in results:
        try:
            environment = json.loads(read_regular(result.directory / "environment.json"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(environment, dict) and isinstance(environment.get("packages", {}), dict):
            return environment
    return {}
