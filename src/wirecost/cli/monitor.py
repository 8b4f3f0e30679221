"""`wirecost monitor`: network counters over time, alone or around a command."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.diagnostics import Diagnostic, lines_of
from wirecost.errors import WirecostError

if TYPE_CHECKING:
    from wirecost.counters import DeviceSummary, Sampler

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


def duration_ns(text: str, option: str) -> int:
    """Returns a duration such as "100ms" in nanoseconds. Raises WirecostError unless it is a positive number with
    a unit.
    """
    m = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h)", text.strip())
    value = round(float(m[1]) * _UNITS_NS[m[2]]) if m else 0
    if value <= 0:
        raise WirecostError(f"{option} '{text}' is no time; write a number and a unit, like 100ms, 1s, 2min")
    return value


def endpoint(text: str) -> tuple[str, int]:
    """Returns (address, port) from "9400" or "0.0.0.0:9400"."""
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise WirecostError(
            f"--prometheus '{text}' is no port; write 9400, or 0.0.0.0:9400 to serve other machines"
        )
    return (address.strip("[]") or "127.0.0.1", int(port))


def monitor(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run this and monitor it to its end.")
    ] = None,
    *,
    every: Annotated[str, typer.Option(help="Time between samples: 100ms, 1s.")] = "100ms",
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write samples to FILE.jsonl or FILE.parquet.")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS:]PORT", help="Serve the latest sample to a Prometheus scraper (loopback)."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only these devices: 'eth*', 'mlx5_0/1'.")
    ] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="Stop after this time: 10s.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live rates and no summary.")] = False,
) -> None:
    """Watch the network of this machine, or of a command.

    Sampled are the counters of Ethernet, InfiniBand and RoCE, NVLink, PCIe, and the kernel's network work.

    Live rates on a terminal, a summary at the end. With a command: monitors it while it runs; its exit code and
    signals pass through."""
    from wirecost.counters import Watcher
    from wirecost.counters import monitor as run

    every_ns = duration_ns(every, "--every")
    if every_ns < 1_000_000:
        raise WirecostError(f"--every '{every}' is too fast; 1ms is the least")
    if command and for_ is not None:
        raise WirecostError("--for and a command exclude each other: the command's end is the monitor's")
    display = _Live() if not quiet and not command and sys.stdout.isatty() else None
    try:
        result = run(
            command or (),
            every_ns=every_ns,
            out=out,
            prometheus=endpoint(prometheus) if prometheus else None,
            only=only or (),
            seconds=duration_ns(for_, "--for") * 1e-9 if for_ else None,
            watcher=Watcher(
                on_start=display.start if display else _announce if not command else lambda _: None,
                on_tick=display.show if display else lambda _: None,
                on_diagnostic=_report,
            ),
        )
    finally:
        if display:
            display.stop()
    if not quiet:
        _print_summary(result.summary, result.samples, result.late_samples)
    if result.error is not None:
        typer.echo(f"wirecost: the recording ended early: {result.error}", err=True)
    raise typer.Exit(result.exit_code or (2 if result.error is not None and not command else 0))


def _report(diagnostic: Diagnostic) -> None:
    """Prints a diagnostic to standard error."""
    for line in lines_of(diagnostic):
        typer.echo(line, err=True)


def _announce(_: Sampler) -> None:
    """Tells the starting process, which waits for it, that counting has begun."""
    print("recording", flush=True)


class _Live:
    """Shows rates on the terminal, redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)

    def start(self, sampler: Sampler) -> None:
        self._live.start()
        self.show(sampler)

    def show(self, sampler: Sampler) -> None:
        table = _table("kind", "device", "receive", "send", "link", "")
        for row in list(sampler.latest.values()):
            if row.kind == "rdma":
                continue
            if row.kind == "cpu":
                cores = row.softirq_cores
                table.add_row(row.kind, row.device, "", "", "", "" if cores is None else f"{cores:.2f} cores")
                continue
            bar = _share(max(row.rx_Bps or 0, row.tx_Bps or 0), row.link_Bps)
            table.add_row(
                row.kind, _text(row.device), _rate(row.rx_Bps), _rate(row.tx_Bps), _rate(row.link_Bps), bar
            )
        self._live.update(table, refresh=True)

    def stop(self) -> None:
        self._live.stop()


def _print_summary(summary: tuple[DeviceSummary, ...], samples: int, late: int) -> None:
    from rich.console import Console

    from wirecost.cli.output import print_diagnostics
    from wirecost.counters import of_summary

    console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)
    table = _table("kind", "device", "received", "sent", "rx mean", "tx mean", "rx peak", "tx peak", "link")
    links = [d for d in sorted(summary, key=lambda d: (d.kind, d.device)) if d.kind not in ("cpu", "rdma")]
    busy = [d for d in links if d.rx_bytes or d.tx_bytes or d.rx_peak_Bps or d.tx_peak_Bps]
    for d in busy or links:
        table.add_row(
            d.kind, _text(d.device), _size(d.rx_bytes), _size(d.tx_bytes), _rate(d.rx_mean_Bps),
            _rate(d.tx_mean_Bps), _rate(d.rx_peak_Bps), _rate(d.tx_peak_Bps), _rate(d.link_Bps),
        )  # fmt: skip
    console.print(table)
    idle = f"; {len(links) - len(busy)} devices without traffic" if busy and len(busy) < len(links) else ""
    console.print(f"{samples} samples, {late} of them late by an interval or more{idle}", style="dim")
    print_diagnostics(console, of_summary(summary))


def _table(*titles: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="left" if title in ("kind", "device", "") else "right", no_wrap=True)
    return table


def _text(name: str) -> Any:
    from rich.text import Text

    return Text("".join(c if c.isprintable() else "?" for c in name))


def _rate(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return "-"
    bits = bytes_per_s * 8
    for unit, size in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if bits >= size:
            return f"{bits / size:.2f} {unit}"
    return f"{bits:.0f} b/s"


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _share(rate: float, link: float | None) -> str:
    return "" if not link else f"{100 * rate / link:3.0f} %"
