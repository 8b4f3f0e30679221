"""Analyses profiler traces: reads those of any number of ranks, and returns exact breakdowns.

>>> import wirecost.trace
>>> traces = wirecost.trace.read("traces/")      # doctest: +SKIP
>>> traces.iterations                            # doctest: +SKIP
"""

from wirecost.trace.read import read
from wirecost.trace.result import TraceSet
from wirecost.trace.source import TraceError

__all__ = ["TraceError", "TraceSet", "read"]
