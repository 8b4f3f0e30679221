"""The one result type of wirecost, the breakdown of an iteration, and its arithmetic."""

from wirecost.breakdown.iteration import Iteration, Phase
from wirecost.breakdown.memory import MemoryKind, OutOfMemory, PeakMemory
from wirecost.breakdown.parts import Parts, split_window, unknown_parts
from wirecost.breakdown.profile import Profile, ProfiledComm, UnknownProfile
from wirecost.breakdown.result import (
    SCHEMA_VERSION,
    Breakdown,
    Collective,
    Interval,
    NetworkRecord,
    Source,
)
from wirecost.breakdown.statistics import Ratio, Spread, ratio_of_medians

__all__ = [
    "SCHEMA_VERSION",
    "Breakdown",
    "Collective",
    "Interval",
    "Iteration",
    "MemoryKind",
    "NetworkRecord",
    "OutOfMemory",
    "Parts",
    "PeakMemory",
    "Phase",
    "Profile",
    "ProfiledComm",
    "Ratio",
    "Source",
    "Spread",
    "UnknownProfile",
    "ratio_of_medians",
    "split_window",
    "unknown_parts",
]
