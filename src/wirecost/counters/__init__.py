"""Samples counters of NICs, InfiniBand ports, NVLink, PCIe and the kernel's network work over time."""

from wirecost.counters.interface import CounterSource, Reading
from wirecost.counters.jsonl import read_jsonl
from wirecost.counters.monitor import MonitorResult, Watcher, monitor, recording
from wirecost.counters.rdma_diagnostics import of_summary
from wirecost.counters.rows import DeviceSummary, Event, Row
from wirecost.counters.sampler import Sampler, Sink, default_sources

__all__ = [
    "CounterSource",
    "DeviceSummary",
    "Event",
    "MonitorResult",
    "Reading",
    "Row",
    "Sampler",
    "Sink",
    "Watcher",
    "default_sources",
    "monitor",
    "of_summary",
    "read_jsonl",
    "recording",
]
