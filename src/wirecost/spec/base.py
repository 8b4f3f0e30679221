"""The base class of all specifications: strict, immutable, and with errors that name the key and what is
allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.errors import deprecated, one_of
from wirecost.spec.written_numbers import takes_only_numbers, with_numbers
from wirecost.units import Seconds

LARGEST, SMALLEST = 1e20, 1e-20
"""Bounds of the size of numbers in specifications. They are far beyond real quantities, as a peak of 1e16
FLOP/s and a latency of 1e-7 s, and products of several numbers within them stay finite."""
LONGEST_S, SHORTEST_S = 1e9, 1e-15


class Spec(BaseModel):
    """Plain validated data. The error for an unknown key names the nearest known one."""

    # Models are built when they are first used, because a command needs only some of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )
    deprecated_keys: ClassVar[dict[str, str]] = {}
    """Former names of keys in users' files, each with the present name. They are accepted with a warning."""
    former_keys: ClassVar[dict[str, str]] = {}
    """Former names of keys in files that wirecost writes, each with the present name. They are accepted."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with other values, for which cached properties are computed anew."""
        copied = super().model_copy(update=update, deep=deep)
        values: dict[str, Any] = vars(copied)
        for name in values.keys() - type(self).model_fields.keys():
            del values[name]
        return copied

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = dict(cls.with_present_keys(data))
            fields = cls.model_fields
            for key, value in data.items():
                if key not in fields:
                    raise ValueError(one_of("key", key, fields))
                if isinstance(value, str | list | tuple | dict):
                    data[key] = with_numbers(fields[key].annotation, value)
                elif isinstance(value, bool) and takes_only_numbers(fields[key].annotation):
                    raise ValueError(f"{key}: should be a number, not {str(value).lower()}")
                check_numbers(key, data[key])
        return data

    @classmethod
    def with_present_keys(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the data with present names for former names of keys. Warns of those that are deprecated."""
        for former, key in (*cls.deprecated_keys.items(), *cls.former_keys.items()):
            if former in data and key not in data:
                data = {key if k == former else k: v for k, v in data.items()}
                if former in cls.deprecated_keys:
                    deprecated(f"the key '{former}'", f"'{key}'")
        return data

    @model_validator(mode="after")
    def _times_are_possible(self) -> Self:
        for key, value in self.__dict__.items():
            if isinstance(value, Seconds) and (value > LONGEST_S or 0 < value < SHORTEST_S):
                raise ValueError(f"{key}: {value:.3g} s can't be")
        return self


def check_numbers(key: str, value: Any) -> None:
    """Raises ValueError for a number outside the bounds, also inside lists and mappings."""
    if isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        size = abs(value)
        if size > LARGEST or 0 < size < SMALLEST:
            shown = f"{value:.3g}" if size < 1e300 else "so large a number"
            raise ValueError(f"{key}: {shown} can't be")
    elif isinstance(value, dict):
        for inner_key, item in value.items():
            check_numbers(f"{key}.{inner_key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_numbers(key, item)
