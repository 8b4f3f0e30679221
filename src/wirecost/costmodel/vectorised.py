"""Many configurations at once: records of several rows become one record of arrays, for the same formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from wirecost.costmodel.inputs import Layout, Shape
from wirecost.costmodel.numbers import as_array


def stacked_shape(shapes: Sequence[Shape]) -> Shape:
    """Returns one Shape whose fields are arrays of shape (len(shapes),)."""
    return Shape(**{f.name: as_array([getattr(s, f.name) for s in shapes]) for f in fields(Shape)})


def stacked_layout(layouts: Sequence[Layout]) -> Layout:
    """Returns one Layout whose fields are arrays of shape (len(layouts),)."""
    return Layout(**{f.name: as_array([getattr(x, f.name) for x in layouts]) for f in fields(Layout)})
