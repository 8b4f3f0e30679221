"""Prints results of other benchmarks with their fits and a comparison with the links."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from wirecost.cli._bench_output import hardware_named, print_rows, write_files
from wirecost.collectives import table
from wirecost.collectives.document import fit_entries
from wirecost.collectives.efficiency import Fitted, fit_rows
from wirecost.collectives.expectation import LinkShare, compare_with_links
from wirecost.collectives.hardware import of_gpu_name
from wirecost.collectives.readers import Reading, Table, read_results
from wirecost.diagnostics import lines_of
from wirecost.errors import SpecError


def read_and_print(
    paths: list[Path],
    ranks: int | None,
    *,
    format: str,
    plot: Path | None,
    cluster: Path | None,
    hardware: str | None = None,
) -> bool:
    """Prints other tools' results in the same tables, each fitted separately. Returns whether all results were
    right.

    Results that the benchmark itself reported as wrong are not written to files or drawn.
    """
    named = hardware_named(hardware) or (hardware_named(str(cluster)) if cluster is not None else None)
    readings = [read_results(path, ranks=ranks) for path in paths]
    tables = [t for reading in readings for t in reading.tables]
    fits = [fit_rows(t.rows, groups=t.groups) for t in tables]
    shares = [
        compare_with_links(t.rows, named or of_gpu_name(t.gpu), hosts=t.hosts, groups=t.groups, span=t.span)
        for t in tables
    ]
    if format in ("csv", "markdown", "latex"):
        print_rows([row for t in tables for row in t.rows], ", ".join(map(str, paths)), format)
    elif format == "json":
        typer.echo(json.dumps(_read_as_json(readings, tables, fits, shares), indent=1))
    else:
        for result_table, fitted, share in zip(tables, fits, shares, strict=True):
            for line in (*table.read_table(result_table), *table.fit_lines(fitted), *table.share_lines(share)):
                typer.echo(line)
    for reading in readings:
        for diagnostic in reading.every_diagnostic:
            for line in lines_of(replace(diagnostic, subject=reading.source)):
                typer.echo(line, err=True)
    if any(reading.corrupt for reading in readings):
        return False
    hosts = {t.hosts for t in tables}
    write_files(
        _fits_to_write(tables, fits, cluster),
        plot,
        cluster,
        title=f"read from {', '.join(p.name for p in paths)}"[:120],
        source=f"read from {', '.join(p.name for p in paths)}"[:200],
        hosts=hosts.pop() if len(hosts) == 1 else None,
        network=None,
    )
    return True


def _read_as_json(
    readings: list[Reading], tables: list[Table], fits: list[list[Fitted]], shares: list[LinkShare | None]
) -> dict[str, Any]:
    """Returns the results as plain data. Every row, fit and link share has the number of its table."""
    by_table = [
        {
            "collective": t.collective,
            "ranks": t.ranks,
            "groups": t.groups,
            "hosts": t.hosts,
            "dtype": t.dtype,
            "gpu": t.gpu,
        }
        for t in tables
    ]
    return {
        "format_version": 2,
        "read": [
            {
                "path": r.source,
                "hosts": r.hosts,
                "ignored": r.ignored,
                "diagnostics": [d.as_json() for d in r.every_diagnostic],
                "notes": [d.message for d in r.diagnostics],
                "corrupt": list(r.corrupt),
            }
            for r in readings
        ],
        "tables": by_table,
        "rows": [row.model_dump(mode="json") | {"table": k} for k, t in enumerate(tables) for row in t.rows],
        "fits": [
            entry.model_dump(mode="json") | {"table": k}
            for k, fitted in enumerate(fits)
            for entry in fit_entries(fitted)
        ],
        "links": [s.model_dump(mode="json") | {"table": k} for k, s in enumerate(shares) if s is not None],
    }


def _fits_to_write(tables: list[Table], fits: list[list[Fitted]], cluster: Path | None) -> list[Fitted]:
    """Returns the fits for files. A cluster has one for each collective, number of ranks and number of groups.

    Raises:
        SpecError: if several tables belong to the same entry of the cluster.
    """
    keys = [(t.collective, t.ranks, t.hosts, t.groups) for t in tables]
    if cluster is not None:
        double = next((k for k in keys if keys.count(k) > 1), None)
        if double is not None:
            types = sorted({t.dtype for t, key in zip(tables, keys, strict=True) if key == double})
            what = f"types ({', '.join(types)})" if len(types) > 1 else "runs"
            raise SpecError(
                f"--cluster: {double[0]} of {double[1]} ranks is there several times, in several {what}: keep one "
                "of them in the file"
            )
    return [fit for fitted in fits for fit in fitted]
