"""Implements `wirecost monitor`: a sampler, its outputs, and the monitored command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wirecost.counters.command import Watched
from wirecost.counters.interface import CounterSource
from wirecost.counters.jsonl import JsonlWriter, read_jsonl
from wirecost.counters.rows import DeviceSummary, Row
from wirecost.counters.sampler import Sampler, Sink
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import WirecostError

MOST_NAMED = 20
"""Most devices that a message lists."""


@dataclass(frozen=True, slots=True)
class MonitorResult:
    """The result of a recording. `exit_code` is the command's (128 + n if signal n ended it), 0 without a command.
    `error` is the error that ended the recording early, such as a full disk; it doesn't end the command.
    """

    exit_code: int
    error: str | None
    summary: tuple[DeviceSummary, ...]
    samples: int
    late_samples: int
    prometheus_port: int | None


def writer_for(path: str | os.PathLike[str]) -> Sink:
    """Returns the writer for a file name's suffix: .jsonl or .parquet."""
    suffix = Path(path).suffix
    if suffix == ".jsonl":
        return JsonlWriter(path)
    if suffix == ".parquet":
        from wirecost.counters.parquet import ParquetWriter

        return ParquetWriter(path)
    raise WirecostError(f"unknown format of '{os.fspath(path)}': name it .jsonl or .parquet")


def read_recording(path: str | os.PathLike[str]) -> list[Row]:
    """Returns the rows of a file that a monitor wrote, see `iterate_recording`."""
    return list(iterate_recording(path))


def iterate_recording(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yields the rows of a file that a monitor wrote. The suffix of its name determines the format.

    Raises:
        WirecostError: for another suffix, or a file that can't be read or has another format.
    """
    suffix = Path(path).suffix
    if suffix == ".jsonl":
        return read_jsonl(path)
    if suffix == ".parquet":
        from wirecost.counters.parquet import iterate_parquet

        return iterate_parquet(path)
    raise WirecostError(f"unknown format of '{os.fspath(path)}': a recording ends in .jsonl or .parquet")


@dataclass(frozen=True)
class Watcher:
    """Callbacks for a running monitor.

    Attributes:
        on_start: called once sampling has begun.
        on_tick: called about ten times a second, for a display.
        on_diagnostic: called before the command starts, for patterns of `only` that match no device.
    """

    on_start: Callable[[Sampler], None] = lambda _: None
    on_tick: Callable[[Sampler], None] = lambda _: None
    on_diagnostic: Callable[[Diagnostic], None] = lambda _: None


def monitor(
    command: Sequence[str] = (),
    *,
    every_ns: int = 100_000_000,
    out: str | os.PathLike[str] | None = None,
    prometheus: tuple[str, int] | None = None,
    only: Sequence[str] = (),
    seconds: float | None = None,
    sources: Sequence[CounterSource] | None = None,
    watcher: Watcher | None = None,
) -> MonitorResult:
    """Samples while `command` runs, or until SIGINT or SIGTERM, or for `seconds`. Must run in the main thread.

    `prometheus` is (address, port). `watcher` is called during the run, for a display.

    Raises:
        WirecostError: before the command is started, if a file or address can't be used, or no pattern of `only`
            matches a device.
    """
    from wirecost.counters.prometheus import PrometheusExporter

    watcher = watcher or Watcher()
    with Watched() as watched:
        sinks: list[Sink] = []
        exporter = None
        try:
            if out is not None:
                sinks.append(writer_for(out))
            sampler = Sampler(every_ns=every_ns, sources=sources, sinks=sinks, keep=False, only=only)
            sampler.sample()  # before the command, so that its first bytes are counted
            _check_filter(sampler, only, watcher.on_diagnostic)
            child = watched.start(command) if command else None
        except WirecostError:
            for sink in sinks:
                sink.close()
            raise
        try:
            if prometheus is not None:
                exporter = PrometheusExporter(prometheus[1], prometheus[0])
                sampler.sinks.append(exporter)
            sampler.start()
            watcher.on_start(sampler)
            if child is None:
                watched.wait_for_end(seconds, lambda: watcher.on_tick(sampler))
                code = 0
            else:
                code = watched.wait(child, lambda: watcher.on_tick(sampler))
        except BaseException:
            if child is not None and child.poll() is None:
                child.terminate()
                child.wait()
            raise
        finally:
            error = None
            try:
                sampler.stop()
            except WirecostError as stopped:
                error = str(stopped)
    return MonitorResult(
        exit_code=code,
        error=error,
        summary=tuple(sampler.summary()),
        samples=sampler.samples,
        late_samples=sampler.late_samples,
        prometheus_port=exporter.port if exporter else None,
    )


def _check_filter(sampler: Sampler, only: Sequence[str], on_diagnostic: Callable[[Diagnostic], None]) -> None:
    """Reports the patterns that match no device. Raises WirecostError if none of them matches one."""
    unmatched = sampler.unmatched()
    if not unmatched:
        return
    shown = ", ".join(sampler.device_names[:MOST_NAMED]) or "none"
    more = f" and {len(sampler.device_names) - MOST_NAMED} more" if len(sampler.device_names) > MOST_NAMED else ""
    patterns = ", ".join(f"'{pattern}'" for pattern in unmatched)
    message = f"--only {patterns} matches no device; devices here: {shown}{more}"
    if len(unmatched) == len(only):
        raise WirecostError(message)
    on_diagnostic(diagnostic("filter_matches_nothing", message))


@contextmanager
def recording(out: str | os.PathLike[str], *, every_ns: int = 100_000_000) -> Iterator[None]:
    """Records in a separate process while the context is active, so that this interpreter isn't disturbed.

    Rows are written to `out`; their `t_ns` is on the clock of time.monotonic_ns(), which all processes of this
    machine share.
    """
    import signal
    import subprocess
    import sys

    arguments = [
        sys.executable,
        "-m",
        "wirecost",
        "monitor",
        "--quiet",
        "--every",
        f"{every_ns}ns",
        "--out",
        str(out),
    ]
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # "recording": the first sample is taken
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate()
    if process.returncode != 0:
        raise WirecostError(f"the monitor of this run failed: {error.decode(errors='replace').strip()}")
