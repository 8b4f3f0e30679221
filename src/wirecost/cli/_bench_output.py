"""Prints a benchmark while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from wirecost.collectives import table
from wirecost.collectives.bench import run_bench
from wirecost.collectives.efficiency import Fitted, efficiency, fit_rows, write_to_cluster
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.readers import read_results
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import Network, Row
from wirecost.errors import SpecError
from wirecost.spec import Cluster, load
from wirecost.text import printable


class LiveTable:
    """nccl-tests' table, a line as soon as all of it is known."""

    def __init__(self, request: BenchRequest) -> None:
        self.request = request
        self.network = Network(name=None, emulated=None)
        self.rows: list[Row] = []
        self._held: list[Row] = []

    def started(self, network: Network) -> None:
        self.network = network

    def row(self, row: Row) -> None:
        before = self.rows[-1] if self.rows else None
        if before is not None and before.collective != row.collective:
            self._end_of(before.collective)
        self.rows.append(row)
        if row.collective == BARRIER:
            typer.echo(table.barrier_line(row))
            return
        if before is None or before.collective != row.collective:
            for line in table.header(self.request, self.network, row.collective):
                typer.echo(line)
        self._held.append(row)
        if len(self._held) == self._modes(row.collective):
            typer.echo(table.line(self._held))
            self._held = []

    def finish(self) -> None:
        if self.rows:
            self._end_of(self.rows[-1].collective)

    def _modes(self, collective: str) -> int:
        return len(self.request.modes) if COLLECTIVES[collective].in_place else 1

    def _end_of(self, collective: str) -> None:
        if collective == BARRIER:
            return
        mine = [r for r in self.rows if r.collective == collective]
        for line in table.footer(mine, collective, checked=self.request.check):
            typer.echo(line)


def check_outputs(plot: Path | None, cluster: Path | None) -> None:
    """Refuses before a minute is spent on measuring what could then not be written.

    Raises:
        SpecError
    """
    if plot is not None and plot.suffix not in {".png", ".svg"}:
        raise SpecError(f"--plot: {plot} must end in .png or .svg")
    if plot is not None and not plot.parent.is_dir():
        raise SpecError(f"--plot: {plot.parent}: no such directory")
    if cluster is not None:
        load(Cluster, cluster)


def run_and_print(request: BenchRequest, *, as_json: bool, plot: Path | None, cluster: Path | None) -> bool:
    """Whether every result was right. Nothing is fitted, drawn or kept of a run with wrong ones."""
    live = LiveTable(request)
    if as_json:
        network, rows = run_bench(request)
    else:
        network, rows = run_bench(request, on_start=live.started, on_row=live.row)
        live.finish()
    fitted = fit_rows(rows, groups=len(request.groups), medians=request.backend is not Backend.NCCL)
    if as_json:
        typer.echo(json.dumps(document(request, network, rows, fitted), indent=1))
    wrong = [r for r in rows if r.wrong]
    if wrong:
        worst = wrong[0]
        typer.echo(
            f"wirecost: {worst.collective} of {worst.size_bytes} B ({worst.mode.replace('_', ' ')}): "
            f"{worst.wrong} elements came out wrong; {len(wrong)} of {len(rows)} results are wrong",
            err=True,
        )
        return False
    if not as_json and len(request.sizes_bytes) > 1:
        for line in table.fit_lines(fitted):
            typer.echo(line)
    title = f"{table.network_line(network)}; {request.backend}"
    _write(fitted, plot, cluster, title=title, source="wirecost bench", hosts=request.hosts, network=network)
    return True


def read_and_print(
    paths: list[Path], ranks: int | None, *, as_json: bool, plot: Path | None, cluster: Path | None
) -> None:
    """Other tools' results, in the same table, fitted the same way."""
    readings = [read_results(path, ranks=ranks) for path in paths]
    rows = [row for reading in readings for row in reading.rows]
    fitted = fit_rows(rows)
    if as_json:
        content = {
            "format_version": 1,
            "read": [{"path": r.source, "hosts": r.hosts, "ignored": r.ignored} for r in readings],
            "rows": [row.model_dump(mode="json") for row in rows],
            "fits": fits_document(fitted),
        }
        typer.echo(json.dumps(content, indent=1))
    else:
        for line in table.read_table(rows):
            typer.echo(line)
        for line in table.fit_lines(fitted):
            typer.echo(line)
    for reading in readings:
        if reading.ignored:
            typer.echo(
                f"wirecost: {printable(reading.source)}: {reading.ignored} lines can't be read",
                err=True,
            )
    hosts = {r.hosts for r in readings}
    _write(
        fitted,
        plot,
        cluster,
        title=f"read from {', '.join(p.name for p in paths)}"[:120],
        source=f"read from {', '.join(p.name for p in paths)}"[:200],
        hosts=hosts.pop() if len(hosts) == 1 else None,
        network=None,
    )


def _write(
    fitted: list[Fitted],
    plot: Path | None,
    cluster: Path | None,
    *,
    title: str,
    source: str,
    hosts: int | None,
    network: Network | None,
) -> None:
    if plot is not None:
        from wirecost.report.collective_figure import write_bandwidth_figure

        write_bandwidth_figure(fitted, title, plot)
        typer.echo(f"wrote {plot}", err=True)
    if cluster is not None:
        found = efficiency(
            fitted,
            source=source,
            hosts=hosts,
            network=network.name if network else None,
            emulated=network.emulated if network else None,
        )
        write_to_cluster(cluster, found)
        typer.echo(f"wrote {cluster}", err=True)


def document(request: BenchRequest, network: Network, rows: list[Row], fitted: list[Fitted]) -> dict[str, Any]:
    """A whole benchmark as data."""
    from wirecost.study.environment import describe_environment

    return {
        "format_version": 1,
        "environment": describe_environment(),
        "request": request.model_dump(mode="json"),
        "network": network.model_dump(mode="json"),
        "rows": [row.model_dump(mode="json") for row in rows],
        "fits": fits_document(fitted),
    }


def fits_document(fitted: list[Fitted]) -> list[dict[str, Any]]:
    found = []
    for one in fitted:
        entry: dict[str, Any] = {
            "collective": one.collective,
            "ranks": one.ranks,
            "mode": str(one.mode),
            "groups": one.groups,
            "refused": one.refusal,
        }
        if one.fit is not None:
            entry |= {
                "latency_ns": one.fit.latency_ns,
                "latency_interval_ns": one.fit.latency_interval_ns,
                "bus_bandwidth_Bps": one.bus_bandwidth_Bps,
                "bus_bandwidth_interval_Bps": [one.factor * 1e9 / s for s in reversed(one.fit.slope_interval)],
                "breaks_bytes": one.fit.curve.breaks,
                "sizes_bytes": one.fit.sizes,
                "residuals": one.fit.residuals,
                "left_out_errors": one.fit.left_out,
                "median_left_out_error": one.fit.error,
            }
        found.append(entry)
    return found
