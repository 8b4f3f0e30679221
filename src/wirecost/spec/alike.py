"""Reads many specifications that have most of their text in common, as the experiments of a study have."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from wirecost.errors import SpecError
from wirecost.spec.base import Spec
from wirecost.spec.yaml import MAX_BYTES, parse_yaml, validate

MOST_LEVELS = 3
"""Levels of keys at which a text is divided; with more, damage far below would be looked for again and again."""
MOST_KEPT = 4096
LONGEST_KEPT = 4096
"""Characters of a block that is kept: with `MOST_KEPT`, memory is bounded whatever is read."""

S = TypeVar("S", bound=Spec)

_BLOCK = re.compile(r"([a-z][a-z0-9_]*):(?: [^\n]*)?\n(?: [^\n]*\n)*")
"""A key at the start of a line with all that belongs to it, in the form that `to_yaml` writes."""
_BELOW = re.compile(r"\n(?:  [^\n]*\n)+")
"""What belongs to a key that has nothing on its own line: lines that are indented."""


class AlikeSpecs(Generic[S]):
    """A reader of specifications that parses each block of text once and shares what it stands for.

    A file is divided into its top-level keys, and these into the keys below them. What isn't wholly made of such
    blocks, or has one that doesn't stand by itself, is parsed as a whole.
    """

    def __init__(self, model: type[S]) -> None:
        self._model = model
        self._parts: dict[str, Any] = {}
        """What top-level blocks stand for: specifications where the model has a specification."""
        self._plain: dict[str, Any] = {}
        """What blocks below them stand for."""

    def parse(self, text: str, where: str) -> S:
        """Returns the specification that a text stands for. `where` names the text in errors.

        Raises:
            SpecError: one line that names the place, the key and what is allowed.
        """
        # An alias may stand in another block than its anchor.
        if len(text) <= MAX_BYTES and "&" not in text and "*" not in text:
            # What is wrong, and where, is said of the whole text.
            with suppress(SpecError, ValidationError, RecursionError):
                return self._model.model_validate(_mapping(text, self._part))
        return validate(self._model, parse_yaml(text, where), where)

    def _part(self, key: str, block: str) -> Any:
        """The value of a top-level key. Raises SpecError or ValidationError if its block isn't sound by itself."""
        if block not in self._parts:
            value = self._value(key, block)
            field = self._model.model_fields.get(key)
            if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, Spec):
                value = field.annotation.model_validate(value)
            _keep(self._parts, block, value)
            return value
        return self._parts[block]

    def _value(self, key: str, block: str, level: int = 1) -> Any:
        """The value of a key at any level. Raises SpecError if its block isn't sound by itself."""
        if block in self._plain:
            return self._plain[block]
        value = None
        below = _BELOW.fullmatch(block, len(key) + 1) if level < MOST_LEVELS else None
        if below is not None:
            # What isn't made of blocks may well be YAML.
            with suppress(SpecError):
                text = below[0].replace("\n  ", "\n")[1:]
                value = _mapping(text, partial(self._value, level=level + 1))
        if value is None:
            data = parse_yaml(block, "block")
            if list(data) != [key]:
                raise SpecError("the block has more than one key")
            value = data[key]
        _keep(self._plain, block, value)
        return value


def _mapping(text: str, value_of: Callable[[str, str], Any]) -> dict[str, Any]:
    """The values of a text that is made of blocks. Raises SpecError if it isn't, or has a key twice."""
    values: dict[str, Any] = {}
    end = 0
    while end < len(text):
        block = _BLOCK.match(text, end)
        if block is None or block[1] in values:
            raise SpecError("not made of blocks")
        values[block[1]] = value_of(block[1], block[0])
        end = block.end()
    return values


def _keep(kept: dict[str, Any], block: str, value: Any) -> None:
    if len(block) <= LONGEST_KEPT:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        kept[block] = value
