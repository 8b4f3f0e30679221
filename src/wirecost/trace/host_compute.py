"""Finds when the host computes in a run without a device, from the operators that its threads run.

Operators nest, and the innermost one of a thread tells what the thread does. Operators of a library (`aten::mm`)
compute. The autograd engine and autograd functions (`AddmmBackward0`, or a job's own function in Python) call
other operators and run hooks. In their own time they may wait for a collective, as FSDP does, so that this time
isn't computation.
"""

from __future__ import annotations

import re
from array import array

import numpy as np

_ENGINE = "autograd::engine::"
_COMPILED = re.compile(r"^(Torch-Compiled Region|CompiledF|CompiledAutograd|## Call |inductor|triton_|cpp_fused)")
"""Names of compiled regions without a namespace. Their kernels are no operators."""
_WAITS = re.compile(r"^(_?c10d(_functional)?|symm_mem)::|^record_param_comms$")


def computes(name: str) -> bool:
    """Returns whether an operator computes in its own time, without the operators that it calls."""
    if name.startswith(_ENGINE) or _WAITS.search(name):
        return False
    return "::" in name or _COMPILED.search(name) is not None


class HostCompute:
    """Takes the operators of a host's threads."""

    def __init__(self) -> None:
        self._start, self._end = array("q"), array("q")
        self._thread, self._computes = array("q"), array("b")
        self._known: dict[str, bool] = {}

    def add(self, name: str, start_ns: int, end_ns: int, thread: int) -> None:
        """Takes an operator."""
        if (known := self._known.get(name)) is None:
            known = self._known[name] = computes(name)
        self._start.append(start_ns)
        self._end.append(end_ns)
        self._thread.append(thread)
        self._computes.append(known)

    def spans(self) -> list[tuple[int, int]]:
        """Returns the times in ns in which a thread computes, in order of thread and start."""
        columns = [np.array(c, dtype=np.int64) for c in (self._thread, self._start, self._end, self._computes)]
        thread, start, end, _ = columns
        order = np.lexsort((-end, start, thread))
        spans: list[tuple[int, int]] = []
        # The operators that run, from the outermost to the innermost: end and whether it computes.
        stack: list[tuple[int, bool]] = []
        last, at = -1, 0
        rows = zip(*(c[order].tolist() for c in columns), strict=True)
        for row_thread, row_start, row_end, row_computes in rows:
            until = row_start if row_thread == last else None
            at = _unwind(stack, at, until, spans)
            last = row_thread
            # An operator doesn't outlast the one that called it by more than the clock's resolution.
            stack.append((min(row_end, stack[-1][0]) if stack else row_end, bool(row_computes)))
            at = row_start
        _unwind(stack, at, None, spans)
        return spans


def _unwind(stack: list[tuple[int, bool]], at: int, until: int | None, spans: list[tuple[int, int]]) -> int:
    """Ends the operators that end by a time, or all, and adds the times in which they compute. Returns the time up
    to which all is added."""
    while stack and (until is None or stack[-1][0] <= until):
        end, own = stack.pop()
        if own:
            _add(spans, at, end)
        at = max(at, end)
    if stack and until is not None and stack[-1][1]:
        _add(spans, at, until)
    return at


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    if end <= start:
        return
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))
