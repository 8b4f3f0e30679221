"""Prints a benchmark while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

import typer

from wirecost.cli.progress import progress_bar
from wirecost.collectives import table
from wirecost.collectives.bench import run_bench
from wirecost.collectives.document import Document, fit_entries
from wirecost.collectives.efficiency import Fitted, efficiency, fit_rows, write_to_cluster
from wirecost.collectives.joined import run_joined
from wirecost.collectives.launcher import World
from wirecost.collectives.operations import BARRIER
from wirecost.collectives.readers import read_results
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import BenchNetwork, Row
from wirecost.errors import SpecError, WirecostError
from wirecost.spec import Cluster, load
from wirecost.text import printable


class LiveTable:
    """nccl-tests' table, a line as soon as all of it is known, and on a terminal a bar below it.

    Args:
        quiet: keep the rows, print none of them.
    """

    def __init__(self, request: BenchRequest, *, quiet: bool = False) -> None:
        self.request, self.quiet = request, quiet
        self.network = BenchNetwork(name=None, emulated=None)
        self.rows: list[Row] = []
        self._held: list[Row] = []
        self._bar = progress_bar()
        self._task = self._bar.add_task("", total=request.measurements, count="", left="")

    def __enter__(self) -> LiveTable:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._held:
            self._echo(table.line(self._held))
        if self.rows:
            self._end_of(self.rows[-1].collective)

    def started(self, network: BenchNetwork) -> None:
        self.network = network

    def row(self, row: Row) -> None:
        self._bar.stop()
        self._add(row)
        self._bar.update(
            self._task,
            completed=len(self.rows),
            description=row.collective,
            count=f"{len(self.rows)}/{self.request.measurements}",
        )
        self._bar.start()

    def _add(self, row: Row) -> None:
        before = self.rows[-1] if self.rows else None
        if before is not None and before.collective != row.collective:
            self._end_of(before.collective)
        self.rows.append(row)
        if row.collective == BARRIER:
            self._echo(table.barrier_line(row))
            return
        if before is None or before.collective != row.collective:
            for line in table.header(self.request, self.network, row.collective):
                self._echo(line)
        self._held.append(row)
        if len(self._held) == self.request.modes_of(row.collective):
            self._echo(table.line(self._held))
            self._held = []

    def _echo(self, line: str) -> None:
        if not self.quiet:
            typer.echo(line)

    def _end_of(self, collective: str) -> None:
        if collective == BARRIER:
            return
        mine = [r for r in self.rows if r.collective == collective]
        for line in table.footer(mine, collective, checked=self.request.check):
            self._echo(line)


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


def run_and_print(
    request: BenchRequest, world: World | None = None, *, as_json: bool, plot: Path | None, cluster: Path | None
) -> bool:
    """Whether every result was right. Nothing is fitted into files, drawn or kept of a run with wrong ones; of one
    that breaks off, what was measured is printed all the same. Of a launcher's ranks the first prints."""
    from wirecost.study.environment import describe_environment

    silent = world is not None and world.rank != 0
    live = LiveTable(request, quiet=as_json or silent)

    def found(ended: str | None) -> list[Fitted]:
        fitted = fit_rows(
            live.rows,
            groups=len(request.groups),
            medians=request.backend is not Backend.NCCL,
            link_bps=request.link_bps,
        )
        if as_json and not silent:
            whole = Document(
                environment=describe_environment(),
                request=request,
                network=live.network,
                ended=ended,
                rows=tuple(live.rows),
                fits=fit_entries(fitted),
            )
            typer.echo(whole.model_dump_json(indent=1))
        return fitted

    try:
        with live:
            if world is None:
                live.network, _ = run_bench(request, on_start=live.started, on_row=live.row)
            else:
                live.network, _ = run_joined(request, world, on_start=live.started, on_row=live.row)
    except (WirecostError, KeyboardInterrupt) as error:
        if live.rows:
            found(str(error) or "interrupted")
        raise
    if silent:
        return True
    fitted = found(None)
    rows = live.rows
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
    title = f"{table.network_line(live.network)}; {request.backend}"
    _write(fitted, plot, cluster, title=title, source="wirecost bench", hosts=request.hosts, network=live.network)
    return True


def read_and_print(
    paths: list[Path], ranks: int | None, *, as_json: bool, plot: Path | None, cluster: Path | None
) -> None:
    """Other tools' results, in the same table, fitted the same way."""
    readings = [read_results(path, ranks=ranks) for path in paths]
    rows = [row for reading in readings for row in reading.rows]
    groups = {r.groups for r in readings}
    if len(groups) > 1:
        raise SpecError("--read: results of one group and of several at once can't be fitted together")
    fitted = fit_rows(rows, groups=groups.pop())
    if as_json:
        content = {
            "format_version": 1,
            "read": [{"path": r.source, "hosts": r.hosts, "ignored": r.ignored} for r in readings],
            "rows": [row.model_dump(mode="json") for row in rows],
            "fits": [entry.model_dump(mode="json") for entry in fit_entries(fitted)],
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
    network: BenchNetwork | None,
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
