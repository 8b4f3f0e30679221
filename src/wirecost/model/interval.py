"""How far a measurement may lie from its prediction: the spread of a stack's errors on rows that weren't fitted."""

from __future__ import annotations

from wirecost.model.machine import stack_named
from wirecost.model.rows import Configuration


def spread_of(row: Configuration) -> float:
    """Half the width, in natural logarithms, of the interval that holds nine in ten measurements."""
    return stack_named(row.key.stack).spread
