"""`wirecost transport`: which transport a job used, by its NCCL log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMAT, check_format, console, print_csv, print_diagnostics

if TYPE_CHECKING:
    from wirecost.ncclog import Verdict


def transport(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Log files, directories of them, .gz too; - for stdin.")
    ],
    format: Annotated[str, FORMAT] = "text",
    expect: Annotated[
        str | None,
        typer.Option(metavar="TRANSPORT", help="Exit with 1 unless the job used this: rdma-gdr, tcp, ..."),
    ] = None,
) -> None:
    """Say which transport a job used, by its NCCL logs.

    The logs are those of NCCL or RCCL with NCCL_DEBUG=INFO. The transport is RDMA with or without GPUDirect, TCP,
    IPoIB, EFA, shared memory or peer access. Warnings say what such logs make people believe wrongly."""
    from wirecost.errors import WirecostError, one_of
    from wirecost.ncclog import Transport, not_as_asked, read_logs

    format = check_format(format)
    if expect is not None and expect not in list(Transport):
        raise WirecostError(one_of("transport", expect, list(Transport)))
    verdict = read_logs(logs)
    if format == "json":
        typer.echo(json.dumps(verdict.as_json(), indent=2))
    elif format == "csv":
        from wirecost.api.logs import TransportView

        print_csv(TransportView(verdict).rows())
    else:
        _print(verdict, format)
    if expect is not None and (mismatch := not_as_asked(verdict, expect)) is not None:
        typer.echo(f"wirecost: {mismatch.message}", err=True)
        raise typer.Exit(1)


# The meaning of each verdict, for users who don't know the terms.
_MEANING = {
    "rdma-gdr": "RDMA with GPUDirect: NICs read and write GPU memory",
    "rdma": "RDMA, staged through host memory on at least one side",
    "tcp": "TCP sockets",
    "ipoib": "TCP sockets over InfiniBand (IPoIB), not RDMA",
    "efa": "AWS Elastic Network Adapter",
    "shm": "shared memory inside the host, not GPU peer access",
    "p2p": "GPU peer access (NVLink or PCIe)",
    "mixed": "edges between hosts differ",
}
_MOST_ROWS = 40


def _print(verdict: Verdict, format: str) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console(format)
    name = verdict.verdict.value
    line = Text(f"Transport: {name}", style="bold")
    out.print(line.append(f"  {verdict.reason or _MEANING[name]}", style="not bold"))
    versions = ", ".join(verdict.nccl_versions) or "version not in the log"
    out.print(
        Text(
            f"{len(verdict.communicators)} communicator(s); {versions}; read {verdict.lines} lines "
            f"({verdict.nccl_lines} NCCL's) from {verdict.sources} source(s)",
            style="dim",
        ),
        soft_wrap=True,
    )
    rows = [(c, p) for c in verdict.communicators for p in c.pairs]
    if rows:
        table = Table(box=None, pad_edge=False)
        for title in ("communicator", "ranks", "hosts", "transport", "NCCL's words", "GPUDirect", "edges"):
            table.add_column(title, justify="right" if title == "edges" else "left", overflow="fold")
        previous = None
        for c, p in rows[:_MOST_ROWS]:
            table.add_row(
                Text("" if c is previous else c.id or "not named"),
                Text("" if c is previous else f"{c.ranks_seen}/{c.nranks or '?'}"),
                Text(_hosts(p.hosts, p.where.value)),
                Text(p.verdict.value + (" (failed)" if p.failed else "")),
                Text(", ".join(p.networks) + (f" on {', '.join(p.interfaces)}" if p.interfaces else "")),
                Text(p.gpudirect.value if p.gpudirect else "-"),
                str(p.edges),
            )
            previous = c
        out.print(table)
        if len(rows) > _MOST_ROWS:
            out.print(Text(f"... {len(rows) - _MOST_ROWS} more rows; --format json has all", style="dim"))
    print_diagnostics(out, verdict.diagnostics)


def _hosts(hosts: tuple[str | None, str | None], where: str) -> str:
    a, b = (h or "?" for h in hosts)
    if a == b != "?" and where == "between-hosts":
        return f"{a} - switches"  # in-network reduction
    return f"inside {b}" if where == "inside-host" else f"{a} - {b}" if b != "?" or a != "?" else "? - ?"
