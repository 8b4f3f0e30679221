"""Constraints on plans: `tp<=8`, `recompute!=full`, `memory<=70GiB`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.errors import SpecError, one_of, shorten
from wirecost.units import parse_size_bytes, parse_time_s

COUNTS = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb", "accumulation", "zero")
WORDS: dict[str, dict[str, float]] = {
    "sp": {"off": 0.0, "on": 1.0},
    "recompute": {"none": 0.0, "selective": 1.0, "full": 2.0},
    "overlap": {"off": 0.0, "on": 1.0},
    "sharding_group": {"all": 0.0, "node": 1.0},
    "placement": {"tp_first": 0.0, "pp_first": 1.0, "dp_last": 2.0},
    "schedule": {"1f1b": 0.0, "interleaved": 1.0, "zb_h1": 2.0, "zb_h2": 3.0, "dualpipe": 4.0},
}
OUTCOMES = ("memory", "time")
NAMES = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "virtual_stages": "vpp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "data_parallel": "dp",
    "micro_batch": "mb",
    "mbs": "mb",
    "sequence_parallel": "sp",
    "iteration": "time",
    "pipeline_schedule": "schedule",
}
"""Longer names of the quantities, which are accepted too."""
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"^\s*([a-z_]{1,40})\s*(<=|>=|!=|==|=|<|>)\s*(.{1,60}?)\s*$")
MOST = 100
"""Most constraints of a search."""


@dataclass(frozen=True)
class Constraint:
    """A condition on one quantity of a plan.

    Attributes:
        key: the quantity: one of COUNTS, of WORDS, or of OUTCOMES (memory in bytes, time in seconds).
        sign: the comparison.
        value: the limit as a number.
        text: the constraint as it was written.
    """

    key: str
    sign: str
    value: float
    text: str

    @property
    def of_outcome(self) -> bool:
        """Whether the quantity is a result of the model and not a choice."""
        return self.key in OUTCOMES

    def holds(self, values: Any) -> Any:
        """Returns whether the constraint holds, for a number or an array of them."""
        return _OPERATORS[self.sign](values, self.value)


def parse_constraint(text: str) -> Constraint:
    """Returns the constraint of a text like `tp<=8`.

    Raises:
        SpecError: for another form, an unknown quantity, or a value that it can't have.
    """
    match = _FORM.match(text.lower().replace("-", "_") if len(text) < 200 else "")
    if not match:
        raise SpecError(f"constraint {shorten(text)}: write a quantity, a sign and a value, as in tp<=8")
    key, sign, value = NAMES.get(match[1], match[1]), match[2], match[3]
    if key in COUNTS:
        return Constraint(key, sign, _count(key, value, text), text)
    if key in WORDS:
        words = WORDS[key]
        word = {"true": "on", "false": "off", "yes": "on", "no": "off"}.get(value, value)
        if word not in words:
            raise SpecError(f"constraint {shorten(text)}: {one_of(f'value of {key}', value, words)}")
        if sign not in ("=", "==", "!="):
            raise SpecError(f"constraint {shorten(text)}: {key} is compared with = or !=")
        return Constraint(key, sign, words[word], text)
    if key in OUTCOMES:
        written = text[text.index(sign) + len(sign) :].strip()
        try:
            limit = parse_size_bytes(written) if key == "memory" else parse_time_s(written)
        except ValueError as error:
            raise SpecError(f"constraint {shorten(text)}: {error}") from error
        return Constraint(key, sign, float(limit), text)
    raise SpecError(f"constraint {shorten(text)}: {one_of('quantity', key, [*COUNTS, *WORDS, *OUTCOMES])}")


def parse_constraints(texts: list[str] | tuple[str, ...]) -> tuple[Constraint, ...]:
    """Returns the constraints of texts, each of which may hold several, separated by commas.

    Raises:
        SpecError: see `parse_constraint`; and for more than MOST.
    """
    parts = [part for text in texts for part in str(text).split(",") if part.strip()]
    if len(parts) > MOST:
        raise SpecError(f"{len(parts)} constraints; at most {MOST}")
    return tuple(parse_constraint(part.strip()) for part in parts)


def holding(constraints: tuple[Constraint, ...], values: Mapping[str, Any], count: int) -> npt.NDArray[np.bool_]:
    """Returns which of `count` plans meet the constraints on the quantities that `values` has."""
    mask = np.ones(count, dtype=bool)
    for each in constraints:
        if each.key in values:
            mask &= np.broadcast_to(each.holds(values[each.key]), (count,))
    return mask


def _count(key: str, value: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise SpecError(f"constraint {shorten(text)}: {key} is a whole number, as in {key}<=8")
    return float(value)
