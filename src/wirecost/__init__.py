"""wirecost: what the network costs in large language model training, why, and what would change it.

The functions of this package read, predict, measure and compare, and each returns a result with the numbers as
attributes, `.to_polars()`, `.to_pandas()` and `.chart()`. Modules are imported when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wirecost._version import __version__

if TYPE_CHECKING:
    from wirecost.api.benchmarks import BenchResults, bench
    from wirecost.api.breakdowns import BreakdownView, ComparisonView, compare, load
    from wirecost.api.logs import TransportView, read_logs
    from wirecost.api.planner import PlanView, plan
    from wirecost.api.predictions import NeedView, PredictionView, SweepView, need, predict, sweep
    from wirecost.api.stragglers import StragglersView, stragglers
    from wirecost.api.studies import StudyResults, read_study, run_study
    from wirecost.api.traces import Traces, read_traces
    from wirecost.api.validation import ValidationView, validate
    from wirecost.api.view import ResultView
    from wirecost.api.whatif import what_if
    from wirecost.api.whatif_view import WhatIfView
    from wirecost.breakdown import Breakdown
    from wirecost.errors import WirecostError
    from wirecost.live.profiler import trace_handler
    from wirecost.live.watch import Watch, watch
    from wirecost.prediction.job import JobOptions
    from wirecost.spec import Cluster, Network, Plan, Study, Workload

__all__ = [
    "BenchResults",
    "Breakdown",
    "BreakdownView",
    "Cluster",
    "ComparisonView",
    "JobOptions",
    "NeedView",
    "Network",
    "Plan",
    "PlanView",
    "PredictionView",
    "ResultView",
    "StragglersView",
    "Study",
    "StudyResults",
    "SweepView",
    "Traces",
    "TransportView",
    "ValidationView",
    "Watch",
    "WhatIfView",
    "WirecostError",
    "Workload",
    "__version__",
    "bench",
    "compare",
    "load",
    "need",
    "plan",
    "predict",
    "read_logs",
    "read_study",
    "read_traces",
    "run_study",
    "stragglers",
    "sweep",
    "trace_handler",
    "validate",
    "watch",
    "what_if",
]

_MODULES = {
    "wirecost.api.benchmarks": ("BenchResults", "bench"),
    "wirecost.api.breakdowns": ("BreakdownView", "ComparisonView", "compare", "load"),
    "wirecost.api.logs": ("TransportView", "read_logs"),
    "wirecost.api.planner": ("PlanView", "plan"),
    "wirecost.api.predictions": ("NeedView", "PredictionView", "SweepView", "need", "predict", "sweep"),
    "wirecost.api.stragglers": ("StragglersView", "stragglers"),
    "wirecost.api.studies": ("StudyResults", "read_study", "run_study"),
    "wirecost.api.traces": ("Traces", "read_traces"),
    "wirecost.api.validation": ("ValidationView", "validate"),
    "wirecost.api.view": ("ResultView",),
    "wirecost.api.whatif": ("what_if",),
    "wirecost.api.whatif_view": ("WhatIfView",),
    "wirecost.breakdown": ("Breakdown",),
    "wirecost.errors": ("WirecostError",),
    "wirecost.live.profiler": ("trace_handler",),
    "wirecost.live.watch": ("Watch", "watch"),
    "wirecost.prediction.job": ("JobOptions",),
    "wirecost.spec": ("Cluster", "Network", "Plan", "Study", "Workload"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wirecost' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
