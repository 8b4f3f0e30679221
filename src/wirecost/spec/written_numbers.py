"""Numbers that YAML reads as text, such as `48e9`: YAML 1.1 needs a dot and a sign, as in `4.8e+10`."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
MAX_DIGITS = 60


def with_numbers(annotation: Any, value: Any) -> Any:
    """Returns a value in which text that is a number is a number, where the annotation takes numbers but no text.

    Args:
        annotation: the type of a field. Lists and mappings of numbers are converted as well.
    """
    if isinstance(value, str):
        if takes_only_numbers(annotation) and _NUMBER.fullmatch(value):
            is_integer = value.strip().lstrip("+-").isdigit() and len(value) <= MAX_DIGITS
            return int(value) if is_integer else float(value)
    elif isinstance(value, list | tuple):
        if len(inner := _arguments(annotation, (list, tuple, set, frozenset))) == 1:
            return type(value)(with_numbers(inner[0], item) for item in value)
    elif isinstance(value, dict) and len(inner := _arguments(annotation, (dict, Mapping))) == 2:
        return {key: with_numbers(inner[1], item) for key, item in value.items()}
    return value


def _alternatives(annotation: Any) -> list[Any]:
    """Returns the types that an annotation allows, without their metadata."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [each for argument in get_args(annotation) for each in _alternatives(argument)]
    return [annotation]


@lru_cache(maxsize=1024)
def takes_only_numbers(annotation: Any) -> bool:
    """Returns whether an annotation allows int or float, and neither text nor true and false."""
    alternatives = _alternatives(annotation)
    return (int in alternatives or float in alternatives) and not {str, bool} & set(alternatives)


def _arguments(annotation: Any, origins: tuple[type, ...]) -> list[Any]:
    """Returns the item types of the first alternative that is one of the containers, without `...`."""
    for each in _alternatives(annotation):
        if get_origin(each) in origins:
            return [argument for argument in get_args(each) if argument is not ...]
    return []
