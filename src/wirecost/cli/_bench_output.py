"""Prints a benchmark while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import typer

from wirecost.cli.output import console, print_csv
from wirecost.cli.output import table as rich_table
from wirecost.cli.progress import progress_bar
from wirecost.collectives import table
from wirecost.collectives.bench import run_bench
from wirecost.collectives.document import Document, fit_entries
from wirecost.collectives.efficiency import Fitted, efficiency, fit_rows, write_to_cluster
from wirecost.collectives.expectation import LinkShare, compare_with_links
from wirecost.collectives.hardware import Hardware, of_cluster, of_request
from wirecost.collectives.joined import run_joined
from wirecost.collectives.operations import BARRIER
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import BenchNetwork, Row
from wirecost.errors import SpecError, WirecostError
from wirecost.launch.world import World
from wirecost.spec import Cluster, load


class LiveTable:
    """Prints nccl-tests' table, each line as soon as it is complete, and on a terminal a progress bar below it.

    Args:
        quiet: keep the rows without printing them.
    """

    def __init__(self, request: BenchRequest, hardware: Hardware | None = None, *, quiet: bool = False) -> None:
        self.request, self.hardware, self.quiet = request, hardware, quiet
        self.links: list[LinkShare] = []
        self.network = BenchNetwork(name=None, emulated=None)
        self.rows: list[Row] = []
        self._pending_rows: list[Row] = []
        self._bar = progress_bar()
        self._task = self._bar.add_task("", total=request.measurements, count="", left="")

    def __enter__(self) -> LiveTable:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._pending_rows:
            self._echo(table.line(self._pending_rows))
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
        self._pending_rows.append(row)
        if len(self._pending_rows) == self.request.modes_of(row.collective):
            self._echo(table.line(self._pending_rows))
            self._pending_rows = []

    def _echo(self, line: str) -> None:
        if not self.quiet:
            typer.echo(line)

    def _end_of(self, collective: str) -> None:
        if collective == BARRIER:
            return
        mine = [r for r in self.rows if r.collective == collective]
        for line in table.footer(mine, collective, checked=self.request.check):
            self._echo(line)
        share = link_share(mine, self.request, self.hardware)
        self.links += [share] if share is not None else []
        for line in table.share_lines(share):
            self._echo(line)


def link_share(rows: list[Row], request: BenchRequest, hardware: Hardware | None) -> LinkShare | None:
    """Compares a measured table's bandwidth with its links; None if no link joins the ranks."""
    if hardware is None and request.hosts == 1 and request.backend is not Backend.NCCL:
        return None
    spans = {len({rank // request.ranks_per_host for rank in group}) for group in request.groups}
    span = spans.pop() if len(spans) == 1 else None
    return compare_with_links(rows, hardware, hosts=request.hosts, groups=len(request.groups), span=span)


def hardware_named(name: str | None) -> Hardware | None:
    """Returns the links of a cluster that a preset's name or a YAML file describes; None for no name.

    Raises:
        SpecError: for a name of no preset, or a file that can't be read.
    """
    from wirecost.spec import load_spec

    if name is None:
        return None
    cluster = load_spec("cluster", name)
    return of_cluster(cluster, f"cluster {cluster.name}")


def check_outputs(plot: Path | None, cluster: Path | None) -> None:
    """Checks that results can be written before anything is measured.

    Raises:
        SpecError
    """
    if plot is not None and plot.suffix not in {".png", ".svg"}:
        raise SpecError(f"--plot: {plot} must end in .png or .svg")
    if plot is not None and not plot.parent.is_dir():
        raise SpecError(f"--plot: {plot.parent}: no such directory")
    if cluster is not None:
        load(Cluster, cluster)


def print_rows(rows: Sequence[Row], title: str, format: str) -> None:
    """Prints measurements as CSV with all columns, or as a Markdown or LaTeX table with those of nccl-tests."""
    if format == "csv":
        print_csv([row.model_dump(mode="json", exclude={"rounds_ns", "groups_ns"}) for row in rows])
        return
    head = ["collective", "size (B)", "type", "mode", "ranks", "time (us)", "algbw (GB/s)", "busbw (GB/s)"]
    body = [
        [
            row.collective,
            row.size_bytes,
            row.dtype,
            row.mode.replace("_", " "),
            row.ranks,
            f"{row.time_ns / 1e3:.2f}",
            *("" if rate is None else f"{rate * 1e-9:.3f}" for rate in (row.algbw_Bps, row.busbw_Bps)),
        ]
        for row in rows
    ]
    console(format).print(rich_table(title, head, body))


def run_and_print(
    request: BenchRequest,
    world: World | None = None,
    *,
    format: str,
    plot: Path | None,
    cluster: Path | None,
    hardware: str | None = None,
) -> bool:
    """Runs a benchmark and prints it. Returns whether every result was right.

    Wrong results are not fitted, drawn or saved. If a run ends early, its rows are printed. Of a launcher's ranks
    only the first prints.
    """
    from wirecost.study.environment import describe_environment

    silent = world is not None and world.rank != 0
    named = hardware_named(hardware)
    live = LiveTable(request, named or of_request(request), quiet=format != "text" or silent)

    def finish(ended: str | None) -> list[Fitted]:
        fitted = fit_rows(
            live.rows,
            groups=len(request.groups),
            medians=request.backend is not Backend.NCCL,
            link_bps=request.link_bps,
        )
        if format in ("csv", "markdown", "latex") and not silent:
            print_rows(live.rows, table.network_line(live.network), format)
        if format == "json" and not silent:
            document = Document(
                environment=describe_environment(),
                request=request,
                network=live.network,
                ended=ended,
                rows=tuple(live.rows),
                fits=fit_entries(fitted),
                links=tuple(live.links),
            )
            typer.echo(document.model_dump_json(indent=1))
        return fitted

    try:
        with live:
            if world is None:
                live.network, _ = run_bench(request, on_start=live.started, on_row=live.row)
            else:
                live.network, _ = run_joined(request, world, on_start=live.started, on_row=live.row)
    except (WirecostError, KeyboardInterrupt) as error:
        if live.rows:
            finish(str(error) or "interrupted")
        raise
    if silent:
        return True
    fitted = finish(None)
    rows = live.rows
    wrong = [r for r in rows if r.wrong]
    if wrong:
        worst = wrong[0]
        typer.echo(
            f"wirecost: {worst.collective} of {worst.size_bytes} B ({worst.mode.replace('_', ' ')}): "
            f"{worst.wrong} elements are wrong; {len(wrong)} of {len(rows)} results are wrong",
            err=True,
        )
        return False
    if format == "text" and len(request.sizes_bytes) > 1:
        for line in table.fit_lines(fitted):
            typer.echo(line)
    title = f"{table.network_line(live.network)}; {request.backend}"
    write_files(
        fitted, plot, cluster, title=title, source="wirecost bench", hosts=request.hosts, network=live.network
    )
    return True


def write_files(
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
        efficiencies = efficiency(
            fitted,
            source=source,
            hosts=hosts,
            network=network.name if network else None,
            emulated=network.emulated if network else None,
        )
        write_to_cluster(cluster, efficiencies)
        typer.echo(f"wrote {cluster}", err=True)
