"""Reads many specifications that share most of their text, such as the experiments of a study."""

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
"""Levels of keys at which a text is divided. With more, a damaged block deep down would be parsed repeatedly."""
MOST_KEPT = 4096
LONGEST_KEPT = 4096
"""The most characters of a cached block. Together with `MOST_KEPT` it bounds the memory of the cache."""

S = TypeVar("S", bound=Spec)

_WHOLE = re.compile("[&*\r\x85\u2028\u2029]")
"""Characters of texts that aren't divided: an alias may be in another block than its anchor, and YAML has more
line breaks than the one at which blocks end."""
_BLOCK = re.compile(r"([a-z][a-z0-9_]*):(?: [^\n]*)?\n(?: [^\n]*\n)*")
"""A key at the start of a line with its value, in the form that `to_yaml` writes."""
_BELOW = re.compile(r"\n(?:  [^\n]*\n)+")
"""The indented lines that are the value of a key with nothing behind it on its own line."""


class AlikeSpecs(Generic[S]):
    """A reader of specifications that parses each block of text once and shares the parsed value.

    A file is divided into the blocks of its top-level keys, and these into the blocks of the keys below. A text
    that can't be divided completely, or that has a block which can't be parsed alone, is parsed as a whole.
    """

    def __init__(self, model: type[S]) -> None:
        self._model = model
        self._parts: dict[str, Any] = {}
        """Values of top-level blocks: a specification if the model's field is one."""
        self._plain: dict[str, Any] = {}
        """Values of all blocks as plain data."""

    def parse(self, text: str, where: str) -> S:
        """Returns the specification in a text. `where` names the text in errors.

        Raises:
            SpecError: one line that names the place, the key and the allowed values.
        """
        if len(text) <= MAX_BYTES and not _WHOLE.search(text):
            # Errors are reported by the parser of the whole text below.
            with suppress(SpecError, ValidationError, RecursionError):
                return self._model.model_validate(_mapping(text, self._part))
        return validate(self._model, parse_yaml(text, where), where)

    def _part(self, key: str, block: str) -> Any:
        """Returns the value of a top-level key. Raises SpecError or ValidationError if its block is invalid."""
        if block not in self._parts:
            value = self._value(key, block)
            field = self._model.model_fields.get(key)
            if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, Spec):
                value = field.annotation.model_validate(value)
            _keep(self._parts, block, value)
            return value
        return self._parts[block]

    def _value(self, key: str, block: str, level: int = 1) -> Any:
        """Returns the value of a key at any level. Raises SpecError if its block alone is invalid."""
        if block in self._plain:
            return self._plain[block]
        value = None
        below = _BELOW.fullmatch(block, len(key) + 1) if level < MOST_LEVELS else None
        if below is not None:
            # A value that can't be divided into blocks may still be valid YAML.
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
    """Returns the values of a text made of blocks. Raises SpecError if it has other content or a key twice."""
    values: dict[str, Any] = {}
    end = 0
    while end < len(text):
        block = _BLOCK.match(text, end)
        if block is None or block[1] in values:
            raise SpecError("not made of blocks")
        values[block[1]] = value_of(block[1], block[0])
        end = block.end()
    return values


def _keep(cache: dict[str, Any], block: str, value: Any) -> None:
    """Caches a block's value; empties a full cache first."""
    if len(block) <= LONGEST_KEPT:
        if len(cache) >= MOST_KEPT:
            cache.clear()
        cache[block] = value
