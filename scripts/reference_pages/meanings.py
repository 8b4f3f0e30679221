"""Reads what keys mean from the docstrings of the specifications."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import griffe

import wirecost
from wirecost.spec.base import Spec

COMMON = {
    "name": "Name of the entry.",
    "description": "Free text.",
    "source": "Where the values are from.",
    "calibration": "Data that the fitted values were fitted to or derived from.",
    "provenance": "Source of the values: `measured`, `derived`, `datasheet` or `judgement`.",
}
"""Meanings of keys that many kinds of files have."""


@lru_cache
def _package() -> griffe.Object:
    source = Path(wirecost.__file__).parents[1]
    loaded = griffe.load("wirecost", search_paths=[source], docstring_parser=griffe.Parser.google)
    assert isinstance(loaded, griffe.Object)
    return loaded


def _described(model: type[Spec]) -> griffe.Object:
    module = model.__module__.removeprefix("wirecost.")
    return _package()[module][model.__qualname__]


@lru_cache
def meanings(model: type[Spec]) -> dict[str, str]:
    """Returns the meaning of each field of a specification by the field's name.

    A meaning is the field's entry in the `Attributes` section of the class, or of a base class, or the docstring
    below the field.
    """
    result: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, Spec) and base is not Spec):
            continue
        described = _described(base)
        for field, member in described.attributes.items():
            if field in base.__annotations__ and member.docstring:
                result[field] = member.docstring.value
        for section in described.docstring.parsed if described.docstring else ():
            if section.kind is griffe.DocstringSectionKind.attributes:
                result |= {attribute.name: attribute.description for attribute in section.value}
    return result


def summary(model: type[Spec]) -> str:
    """Returns the text of a specification's docstring without its sections."""
    described = _described(model)
    sections = described.docstring.parsed if described.docstring else ()
    return "\n\n".join(s.value for s in sections if s.kind is griffe.DocstringSectionKind.text)
