"""What the registry holds of each code."""

from __future__ import annotations

import re
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
    WHATIF = "whatif"
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
        loses_data: whether data is missing from the numbers because of it.
    """

    code: str
    severity: Severity
    area: Area
    meaning: str
    remedy: str | None = None
    loses_data: bool = False

    @property
    def message(self) -> str:
        """The meaning as one clause after another, for diagnostics that have nothing to add to it."""
        sentences = re.split(r"(?<=[.])\s+(?=[A-Z])", self.meaning.replace("`", ""))
        return "; ".join(_as_clause(sentence.removesuffix(".")) for sentence in sentences)


def _as_clause(sentence: str) -> str:
    """Returns a sentence with a small first letter, unless its first word is a name in capitals."""
    word = sentence.partition(" ")[0]
    return sentence if word[1:].lower() != word[1:] else sentence[:1].lower() + sentence[1:]
