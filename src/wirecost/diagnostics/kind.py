"""What the registry holds of each code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wirecost.diagnostics.record import Severity


class Area(StrEnum):
    """What a diagnostic is about. Those of `wirecost doctor` name the part of the machine."""

    MEASUREMENT = "measurement"
    RESULTS = "results"
    NCCL_LOGS = "nccl_logs"
    TRACES = "traces"
    BENCHMARK_TABLES = "benchmark_tables"
    PREDICTION = "prediction"
    CALIBRATION = "calibration"
    COUNTERS = "counters"
    GPU = "gpu"
    NIC = "nic"
    RDMA = "rdma"
    GPUDIRECT = "gpudirect"
    LIMITS = "limits"
    ENVIRONMENT = "environment"
    PROCESSOR = "processor"
    EMULATION = "emulation"


@dataclass(frozen=True, slots=True)
class Kind:
    """One code.

    Attributes:
        severity: the usual severity; a diagnostic may state another one.
        meaning: one or two sentences for the documentation: what was seen and what it does to the answer.
        remedy: what to do in general; a diagnostic may state a more exact remedy.
    """

    code: str
    severity: Severity
    area: Area
    meaning: str
    remedy: str | None = None
