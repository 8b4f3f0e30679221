"""Somebody else's job: profiler traces of any number of ranks to breakdowns, exactly and fast.

>>> import wirecost.trace
>>> traces = wirecost.trace.read("traces/")      # doctest: +SKIP
>>> traces.iterations                            # doctest: +SKIP
"""

from wirecost.trace.read import read
from wirecost.trace.result import TraceSet
from wirecost.trace.source import TraceError

__all__ = ["TraceError", "TraceSet", "read"]
