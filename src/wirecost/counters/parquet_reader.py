"""Reads a Parquet recording in a separate process, which writes JSON lines to standard output.

The table library panics on damaged files, which prints long messages and can end the process, and it allocates as
much memory as a file requests. In a child process both become one line of error.

    python -m wirecost.counters.parquet_reader FILE
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from wirecost.counters.rows import Row
from wirecost.errors import WirecostError

MOST_ROWS = 100_000_000
"""Most rows of a recording: ten devices, ten times a second, for eleven days."""
_BATCH_ROWS = 100_000
_MOST_MEMORY_BYTES = 8 << 30
_INTEGERS = ("t_ns", "unix_ns", "rx_bytes", "tx_bytes", "late_ns", "rx_packets", "tx_packets")
_FLOATS = ("rx_Bps", "tx_Bps", "link_Bps", "softirq_cores", "softirq_busiest_core", "net_rx_per_s", "net_tx_per_s")


def column_types(pl: Any) -> dict[str, Any]:
    """Returns the columns of a recording with their polars types."""
    return {name: _type(pl, name) for name in Row.__dataclass_fields__}


def _type(pl: Any, name: str) -> Any:
    if name in _INTEGERS:
        return pl.Int64
    if name == "events":
        return pl.List(pl.Struct({"counter": pl.String, "count": pl.Int64}))
    return pl.Float64 if name in _FLOATS else pl.String


def rows_of(path: Path) -> Iterator[Row]:
    """Yields the rows of a recording, read by a child process.

    Raises:
        WirecostError: if the file has another format or more than `MOST_ROWS` rows.
    """
    import msgspec

    package = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ) | {"RUST_BACKTRACE": "0", "POLARS_MAX_THREADS": "2"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (package, environment.get("PYTHONPATH", "")) if p)
    decode = msgspec.json.Decoder(Row).decode
    command = [sys.executable, "-P", "-m", "wirecost.counters.parquet_reader", str(path)]
    with (
        # The output goes to memory instead of a file, so that no writable directory is needed.
        open(os.memfd_create("wirecost-parquet"), "w+b") as stderr,  # noqa: PTH123 - a descriptor, not a path
        Popen(command, stdout=PIPE, stderr=stderr, env=environment) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                yield decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WirecostError(f"can't read '{path}' as a recording: {error}") from None
        finally:
            # A caller may stop before the end; the child is no longer needed then.
            child.stdout.close()
            if child.poll() is None:
                child.terminate()
        if child.wait() == 0:
            return
        stderr.seek(0)
        messages = [
            line for line in stderr.read().decode("utf-8", "replace").splitlines() if line.startswith(_MARK)
        ]
        reason = messages[-1].removeprefix(_MARK) if messages else "it is damaged"
        raise WirecostError(f"can't read '{path}' as a recording: {reason}")


_MARK = "recording: "


def _main(path: Path) -> None:
    import polars as pl

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > _MOST_MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, hard))
    try:
        table = pl.scan_parquet(path)
        types = column_types(pl)
        older = {name: kind for name, kind in types.items() if name != "events"}
        if table.collect_schema() not in (types, older):  # older recordings lack events
            sys.exit(f"{_MARK}it has other columns")
        count = int(table.select(pl.len()).collect().item())
        # In this format a small file can declare any number of rows.
        if count > MOST_ROWS:
            sys.exit(f"{_MARK}{count} rows, more than {MOST_ROWS}")
        for start in range(0, count, _BATCH_ROWS):
            sys.stdout.buffer.write(table.slice(start, _BATCH_ROWS).collect().write_ndjson().encode())
    except (OSError, pl.exceptions.PolarsError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        sys.exit(f"{_MARK}{first[:200]}")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
