"""The reference page of all diagnostics, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.registry import KINDS

_TITLES = {
    Area.MEASUREMENT: "Measured runs",
    Area.RESULTS: "Stored results and reports",
    Area.NCCL_LOGS: "NCCL logs",
    Area.TRACES: "Traces",
    Area.BENCHMARK_TABLES: "Benchmark tables",
    Area.PREDICTION: "Predictions",
    Area.CALIBRATION: "Calibration",
    Area.WHATIF: "What-if questions",
    Area.COUNTERS: "Network counters",
    Area.GPU: "Machine: GPUs",
    Area.NIC: "Machine: network interfaces",
    Area.RDMA: "Machine: RDMA devices",
    Area.GPUDIRECT: "Machine: GPUDirect",
    Area.LIMITS: "Machine: containers and limits",
    Area.ENVIRONMENT: "Machine: NCCL's settings",
    Area.PROCESSOR: "Machine: processor",
    Area.EMULATION: "Machine: emulated networks",
}

_HEAD = """\
# Diagnostics

<!-- Made by `python -m wirecost.diagnostics > docs/reference/diagnostics.md`. -->

Beside its numbers, wirecost reports diagnostics. Each has a code that stays the same over versions, a severity, a
message and, where something can be done, a remedy. On the terminal:

    warning tcp_interface_unknown: the log holds no 'NET/Socket : Using [0]...' line for these sockets, ...
    -> log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH

In JSON a diagnostic is an object `{"code", "severity", "message", "remedy"}`; `subject` (a rank, host, port or
file) and `count` stand beside them where they apply.

| severity | meaning |
|---|---|
| `ok` | something works as it should |
| `info` | something to know when reading the numbers; it makes none of them wrong |
| `warning` | it costs speed, or makes numbers less certain or incomplete |
| `error` | something can't work, or the numbers concerned mean nothing |

The severity below is the usual one; a diagnostic may state another one, and a more exact remedy.
"""


def page() -> str:
    """Returns the page: every registered code, grouped by area in the order of `Area`, then by code."""
    return _HEAD + "".join(_section(area) for area in Area)


def _section(area: Area) -> str:
    kinds = sorted((kind for kind in KINDS.values() if kind.area is area), key=lambda kind: kind.code)
    return f"\n## {_TITLES[area]}\n" + "".join("".join(_entry(kind)) for kind in kinds)


def _entry(kind: Kind) -> Iterator[str]:
    yield f"\n### {kind.code}\n\n**{kind.severity}**{', data is missing' * kind.loses_data}. {kind.meaning}\n"
    if kind.remedy is not None:
        yield f"\nRemedy: {kind.remedy}.\n"
