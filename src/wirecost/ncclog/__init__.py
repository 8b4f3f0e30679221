"""What an NCCL or RCCL log proves about the transport that a job used."""

from wirecost.ncclog.reader import LogReader
from wirecost.ncclog.result import (
    CommunicatorVerdict,
    GpuDirect,
    PairVerdict,
    Transport,
    Verdict,
    Where,
    not_as_asked,
)
from wirecost.ncclog.sources import read_logs, read_text

__all__ = [
    "CommunicatorVerdict",
    "GpuDirect",
    "LogReader",
    "PairVerdict",
    "Transport",
    "Verdict",
    "Where",
    "not_as_asked",
    "read_logs",
    "read_text",
]
