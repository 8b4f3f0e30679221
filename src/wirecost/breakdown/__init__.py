"""The one result type of wirecost, the breakdown of an iteration, and its arithmetic."""

from wirecost.breakdown.iteration import Iteration, Phase
from wirecost.breakdown.memory import MemoryKind, OutOfMemory, PeakMemory
from wirecost.breakdown.parts import Parts, split_window, unknown_parts
from wirecost.breakdown.profile import Profile, ProfiledComm, UnknownProfile
from wirecost.breakdown.repeats import MeanInterval, ratio_over_repeats, share_interval, time_interval
from wirecost.breakdown.result import (
    SCHEMA_VERSION,
    Breakdown,
    Collective,
    Interval,
    NetworkRecord,
    Source,
)
from wirecost.breakdown.shares import Share
from wirecost.breakdown.statistics import Ratio, Spread, ratio_of_medians

__all__ = [
    "SCHEMA_VERSION",
    "Breakdown",
    "Collective",
    "Interval",
    "Iteration",
    "MeanInterval",
    "MemoryKind",
    "NetworkRecord",
    "OutOfMemory",
    "Parts",
    "PeakMemory",
    "Phase",
    "Profile",
    "ProfiledComm",
    "Ratio",
    "Share",
    "Source",
    "Spread",
    "UnknownProfile",
    "ratio_of_medians",
    "ratio_over_repeats",
    "share_interval",
    "split_window",
    "time_interval",
    "unknown_parts",
]
