"""What every specification shares: strict, frozen, with refusals that name the key and what is allowed."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.errors import deprecated, one_of
from wirecost.units import Seconds

LARGEST, SMALLEST = 1e20, 1e-20
"""Sizes of numbers in specifications: a peak of 1e16 FLOP/s and a latency of 1e-7 s lie well inside, and products
of several of them stay finite."""
LONGEST_S, SHORTEST_S = 1e9, 1e-15


class Spec(BaseModel):
    """Plain validated data. Unknown keys are refused with the nearest known one."""

    # Built when first used: a command that needs three specifications should not wait for all of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )
    deprecated_keys: ClassVar[dict[str, str]] = {}
    """Keys that people wrote before they were renamed, each with today's key; accepted with a warning."""
    former_keys: ClassVar[dict[str, str]] = {}
    """Keys that wirecost itself wrote before they were renamed, each with today's key."""

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for former, key in (*cls.deprecated_keys.items(), *cls.former_keys.items()):
                if former in data and key not in data:
                    data = {key if k == former else k: v for k, v in data.items()}
                    if former in cls.deprecated_keys:
                        deprecated(f"the key '{former}'", f"'{key}'")
            for key, value in data.items():
                if key not in cls.model_fields:
                    raise ValueError(one_of("key", key, cls.model_fields))
                _check_numbers(key, value)
        return data

    @model_validator(mode="after")
    def _times_are_possible(self) -> Self:
        for key, value in self.__dict__.items():
            if isinstance(value, Seconds) and (value > LONGEST_S or 0 < value < SHORTEST_S):
                raise ValueError(f"{key}: {value:.3g} s can't be")
        return self


def _check_numbers(key: str, value: Any) -> None:
    """Raises ValueError for a number, also inside lists and mappings, that no quantity can be."""
    if isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        size = abs(value)
        if size > LARGEST or 0 < size < SMALLEST:
            shown = f"{value:.3g}" if size < 1e300 else "so large a number"
            raise ValueError(f"{key}: {shown} can't be")
    elif isinstance(value, dict):
        for inner, one in value.items():
            _check_numbers(f"{key}.{inner}", one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_numbers(key, one)
