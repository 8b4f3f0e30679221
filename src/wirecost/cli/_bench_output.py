"""Prints a benchmark while it runs."""

from __future__ import annotations

import json
from typing import Any

import typer

from wirecost.collectives import table
from wirecost.collectives.bench import run_bench
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.request import BenchRequest
from wirecost.collectives.result import Network, Row


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


def run_and_print(request: BenchRequest, *, as_json: bool) -> bool:
    """Whether every result was right."""
    live = LiveTable(request)
    if as_json:
        network, rows = run_bench(request)
        typer.echo(json.dumps(document(request, network, rows), indent=1))
    else:
        _, rows = run_bench(request, on_start=live.started, on_row=live.row)
        live.finish()
    wrong = [r for r in rows if r.wrong]
    if wrong:
        worst = wrong[0]
        typer.echo(
            f"wirecost: {worst.collective} of {worst.size_bytes} B ({worst.mode.replace('_', ' ')}): "
            f"{worst.wrong} elements came out wrong; {len(wrong)} of {len(rows)} results are wrong",
            err=True,
        )
    return not wrong


def document(request: BenchRequest, network: Network, rows: list[Row]) -> dict[str, Any]:
    from wirecost.study.environment import describe_environment

    return {
        "format_version": 1,
        "environment": describe_environment(),
        "request": request.model_dump(mode="json"),
        "network": network.model_dump(mode="json"),
        "rows": [row.model_dump(mode="json") for row in rows],
    }
