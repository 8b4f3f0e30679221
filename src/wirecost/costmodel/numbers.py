"""Numbers that the formulas take: one, or an array with an element for each configuration.

The scalar and the vectorised path are the same code. Every function takes floats or float64 arrays that broadcast
together, and returns floats or arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Number = float | npt.NDArray[np.floating[Any]]
"""A float, or a float64 array of shape (configurations,)."""
Flag = bool | np.bool_ | npt.NDArray[np.bool_]
"""A truth value, or an array of them of shape (configurations,)."""


def where(condition: Flag, yes: Number, no: Number) -> Number:
    """Returns `yes` where the condition holds, else `no`; plain floats stay plain."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return np.where(condition, yes, no)


def flag(condition: Flag) -> Number:
    """Returns 1.0 where the condition holds, 0.0 elsewhere: multiplying by it is much cheaper than `np.where`."""
    return condition * 1.0


def blend(share: Number, yes: Number, no: Number) -> Number:
    """Returns `yes` where `share` is 1, `no` where it is 0: `np.where` for finite numbers, in half its time."""
    return no + share * (yes - no)


def has(condition: Flag) -> bool:
    """Whether any configuration meets the condition: branches that none needs cost nothing."""
    return bool(condition) if isinstance(condition, bool | np.bool_) else bool(np.any(condition))


def as_array(values: Any) -> npt.NDArray[np.float64]:
    """Returns a float64 array of the values."""
    return np.asarray(values, dtype=np.float64)
